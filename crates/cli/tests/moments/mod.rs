//! The moments of a schedule, and the runs it had for them.

use std::collections::BTreeMap;

use serde_json::Value;

/// The runs by their nominal time. There are never two for one moment.
pub fn moments(get: impl Fn(&str) -> Value, name: &str) -> BTreeMap<i64, Value> {
    let mut all = BTreeMap::new();
    let mut path = format!("/v1/schedules/{name}/runs?limit=1000");
    loop {
        let page = get(&path);
        for run in page["items"].as_array().unwrap_or_else(|| panic!("{page:#}")) {
            let twice = all.insert(ms(&run["scheduledFor"]), run.clone());
            assert!(twice.is_none(), "{name}: two runs for one moment: {run:#} {twice:#?}");
        }
        let Some(cursor) = page["nextCursor"].as_str() else { return all };
        path = format!("/v1/schedules/{name}/runs?limit=1000&cursor={cursor}");
    }
}

/// The first of the moments that a schedule of this length has had since it was made.
pub fn nominal(schedule: &Value, every_ms: i64, n: usize) -> Vec<i64> {
    let anchor = ms(&schedule["schedule"]["anchor"]);
    (1..=n as i64).map(|n| anchor + n * every_ms).collect()
}

pub fn ms(value: &Value) -> i64 {
    value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()
}
