//! Schedules that chance makes, and what their owners do with them.

use std::sync::Arc;

use runyard_core::event::{Event, NewMember};
use runyard_core::ids::ScheduleId;
use runyard_core::name::Name;
use runyard_core::now::WallMs;
use runyard_core::schedule::{
    CatchUp, NewSchedule, Overlap, Rules, ScheduleAct, ScheduleBody, Standing, Template, Timing,
};
use runyard_core::session::Settings;
use runyard_core::task::Policy;
use runyard_cron::Calendar;

use crate::generate;
use crate::timetable::ZONES;
use crate::world::World;

impl World {
    pub(crate) fn schedule_act(&mut self) {
        let known: Vec<ScheduleId> = self.oracle.book.rows.keys().copied().collect();
        let is_crowded = known.len() as u64 >= self.universe.n_schedules;
        let is_new = known.is_empty() || !is_crowded && self.rng.chance(60);
        let is_stranger = is_new || self.rng.one_in(30);
        let id = if is_stranger { ScheduleId(self.rng.id()) } else { *self.rng.pick(&known) };
        let act = match self.rng.below(100) {
            _ if is_new => ScheduleAct::Create(Box::new(self.new_schedule(id))),
            0..=29 => ScheduleAct::Edit(Box::new(self.edited(id))),
            30..=44 => ScheduleAct::Pause { reason: "asked for".into() },
            45..=69 => ScheduleAct::Resume,
            70..=79 => ScheduleAct::Delete,
            _ => ScheduleAct::Run,
        };
        // Who did not hear the answer asks again.
        for _ in 0..if self.rng.one_in(20) { 2 } else { 1 } {
            let ticket = self.ticket();
            self.inbox.push(Event::Schedule { ticket, id, act: act.clone() });
        }
    }

    fn new_schedule(&mut self, id: ScheduleId) -> NewSchedule {
        let wall_ms = self.now().wall_ms;
        let overlap = *self.rng.pick(&[Overlap::Skip, Overlap::Queue, Overlap::Replace, Overlap::Allow]);
        let timing = self.timing(wall_ms);
        let rng = &mut self.rng;
        let is_single = matches!(timing, Timing::At(_));
        let rules = Rules {
            timing,
            overlap,
            catch_up: match rng.below(4) {
                0 | 1 => CatchUp::Skip,
                2 => CatchUp::One,
                _ => {
                    CatchUp::All { limit: rng.between(1, 5) as u32, expiry_ms: *rng.pick(&[10_000, 90_000, u64::MAX]) }
                }
            },
            stagger_ms: *rng.pick(&[0, 0, 700]),
            jitter_ms: *rng.pick(&[0, 0, 300, 4000]),
            from: rng.chance(10).then(|| wall_ms + rng.below(20_000)),
            until: rng.chance(15).then(|| wall_ms + rng.below(120_000)),
            runs_max: rng.chance(30).then(|| rng.between(1, 12)),
            delete_after_run: rng.chance(if is_single { 70 } else { 10 }),
            alert_after: rng.chance(50).then(|| rng.between(1, 3) as u32),
            pause_after: rng.chance(25).then(|| rng.between(1, 4) as u32),
        };
        let standing = match rng.chance(90) {
            true => Standing::Enabled,
            false => Standing::Paused { reason: "made so".into() },
        };
        let mut flow = generate::flow_key(rng, &self.universe);
        flow.shape.place = Default::default();
        // Nobody waits for a call: who asked for one is known by what he submitted.
        let policy = Policy { calls_back: false, ..generate::policy(rng, flow.tier) };
        // A line of its own kind: those of the chats have owners who stop them.
        let has_session = matches!(overlap, Overlap::Queue | Overlap::Replace) || rng.chance(20);
        let session = has_session.then(|| NewMember {
            key: Name::from(format!("job:{}", rng.below(3))),
            settings: if rng.chance(15) { generate::settings(rng) } else { Settings::default() },
            as_mode: None,
            sent_at: None,
        });
        let spec = format!("schedule {:032x}, run {{{{run}}}} {{{{none}}", id.0);
        let template = Template { flow, rank: 0, policy, session, spec: Arc::from(spec.as_bytes()) };
        let name = if rng.chance(10) { "often".into() } else { format!("s{:x}", id.0) };
        let body = ScheduleBody { template, spec: Arc::from(rng.draw().to_le_bytes().as_slice()) };
        NewSchedule { name: Name::from(name), rules, standing, body }
    }

    fn timing(&mut self, wall_ms: WallMs) -> Timing {
        let rng = &mut self.rng;
        match rng.below(10) {
            0..=1 => Timing::At((wall_ms + rng.below(20_000)).saturating_sub(1000)),
            2..=5 => {
                let every_ms = *rng.pick(&[2000, 5000, 9000, 15_000, 61_000]);
                Timing::Every { every_ms, anchor: (wall_ms + rng.below(9000)).saturating_sub(rng.below(90_000)) }
            }
            _ => {
                let expr = *rng.pick(&["*/5 * * * * *", "3,40 * * * * *", "*/20 */2 * * * *", "0 */15 * * * *"]);
                let (zone, _) = *rng.pick(&ZONES);
                Timing::Cron(Arc::new(Calendar::new(expr, zone).expect("an expression in a zone")))
            }
        }
    }

    /// Another one altogether, or the same with another template, or with other rules and the same timing.
    fn edited(&mut self, id: ScheduleId) -> NewSchedule {
        let mut new = self.new_schedule(id);
        let Some(old) = self.oracle.book.rows.get(&id) else { return new };
        if self.rng.chance(60) {
            new.name = old.row.name.clone();
            new.standing = old.row.standing.clone();
            if matches!(new.standing, Standing::Done { .. }) {
                new.standing = Standing::Enabled;
            }
        }
        match self.rng.below(3) {
            0 => new.rules = old.row.rules.clone(),
            1 => new.rules.timing = old.row.rules.timing.clone(),
            _ => {}
        }
        new
    }
}
