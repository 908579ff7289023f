//! What a worker says of itself, checked and in the scheduler's words.

use runyard_core::event::WorkerSpec;
use runyard_core::flow::Resources;
use runyard_core::ids::WorkerId;
use runyard_core::name::Name;
use runyard_core::worker::Vitals;
use runyard_wire::{MachineMetrics, SyncRequest, WorkerRequest};

use super::About;
use crate::config::{NAME_RULE, name_is_valid};
use crate::intake::labels;
use crate::problem::Invalid;

const CPUS_MAX: f64 = 100_000.0;
const KINDS_MAX: usize = 64;
const RESOURCES_MAX: usize = 64;
const ABOUT_CHARS_MAX: usize = 256;
const TROUBLE_CHARS_MAX: usize = 1000;

/// What it offers, and what is known of it besides.
pub struct Offer {
    pub spec: WorkerSpec,
    pub about: About,
}

impl Offer {
    pub fn of(id: WorkerId, request: WorkerRequest, key_hash: String) -> Result<Offer, Invalid> {
        if !(request.cpus > 0.0 && request.cpus <= CPUS_MAX) {
            return Err(Invalid::new("cpus", format!("must be more than 0 and at most {CPUS_MAX}")));
        }
        if request.ram_mb == 0 {
            return Err(Invalid::new("ramMb", "must be at least 1"));
        }
        if request.max_parallel == Some(0) {
            return Err(Invalid::new("maxParallel", "must be at least 1; leave it out for as many as have room"));
        }
        let kinds = kinds("kinds", &request.kinds)?;
        if kinds.is_empty() {
            return Err(Invalid::new("kinds", "at least one"));
        }
        let keeps = self::kinds("keeps", &request.keeps)?;
        if let Some(at) = keeps.iter().position(|kind| !kinds.contains(kind)) {
            return Err(Invalid::new(format!("keeps[{at}]"), "must be one of its kinds"));
        }
        let capacity = Resources {
            // The smallest share there is of a core, for one that offers less.
            cpu_milli: ((request.cpus * 1000.0).round() as u32).max(1),
            ram_mb: request.ram_mb,
            named: resources(&request)?,
        };
        let spec = WorkerSpec {
            id,
            name: name("name", &request.name)?,
            kinds,
            keeps,
            capacity,
            parallel_max: request.max_parallel,
            labels: labels("labels", &request.labels)?,
            embedded: false,
        };
        let about = About {
            key_hash,
            hostname: text("hostname", request.hostname)?,
            os: text("os", request.os)?,
            version: text("version", request.version)?,
        };
        Ok(Offer { spec, about })
    }
}

fn name(field: &str, text: &str) -> Result<Name, Invalid> {
    if name_is_valid(text) { Ok(Name::new(text)) } else { Err(Invalid::new(field, NAME_RULE)) }
}

fn kinds(field: &str, kinds: &[String]) -> Result<Vec<Name>, Invalid> {
    if kinds.len() > KINDS_MAX {
        return Err(Invalid::new(field, format!("at most {KINDS_MAX}")));
    }
    let named = kinds.iter().enumerate().map(|(at, kind)| name(&format!("{field}[{at}]"), kind));
    let mut named = named.collect::<Result<Vec<Name>, Invalid>>()?;
    named.sort();
    named.dedup();
    Ok(named)
}

fn resources(request: &WorkerRequest) -> Result<Vec<(Name, u32)>, Invalid> {
    if request.resources.len() > RESOURCES_MAX {
        return Err(Invalid::new("resources", format!("at most {RESOURCES_MAX}")));
    }
    let one = |(resource, n): (&String, &u32)| match resource.as_str() {
        "cpu" | "ramMb" => Err(Invalid::new(format!("resources.{resource}"), "is said as cpus and ramMb")),
        _ => Ok((name("resources", resource)?, *n)),
    };
    // In the order of a map of texts, which is the scheduler's order too.
    request.resources.iter().map(one).collect()
}

fn text(field: &str, text: Option<String>) -> Result<Option<String>, Invalid> {
    match text {
        Some(text) if text.chars().count() > ABOUT_CHARS_MAX => {
            Err(Invalid::new(field, format!("at most {ABOUT_CHARS_MAX} characters")))
        }
        text => Ok(text),
    }
}

/// What the scheduler decides by, of what a worker says of its machine.
pub fn vitals(request: &SyncRequest) -> Result<Vitals, Invalid> {
    let of = |metrics: &MachineMetrics| -> Result<_, Invalid> {
        if metrics.cpu_usage.is_some_and(|usage| !(0.0..=100.0).contains(&usage)) {
            return Err(Invalid::new("metrics.cpuUsage", "must be from 0 to 100"));
        }
        Ok((metrics.cpu_usage.map(|usage| (usage * 1000.0).round() as u32), metrics.ram_free_mb))
    };
    let (cpu_usage_milli, ram_free_mb) = request.metrics.as_ref().map(of).transpose()?.unwrap_or_default();
    let trouble = request.unhealthy.as_ref().map(|why| why.chars().take(TROUBLE_CHARS_MAX).collect::<String>().into());
    Ok(Vitals { cpu_usage_milli, ram_free_mb, trouble, want: request.want })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> WorkerRequest {
        WorkerRequest { name: "w".into(), cpus: 2.5, ram_mb: 512, kinds: vec!["noop".into()], ..Default::default() }
    }

    fn refused(request: WorkerRequest) -> String {
        Offer::of(WorkerId(1), request, String::new()).err().expect("it is refused").field
    }

    #[test]
    fn what_cannot_be_offered_is_named() {
        for cpus in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(WorkerRequest { cpus, ..request() }), "cpus");
        }
        assert_eq!(refused(WorkerRequest { ram_mb: 0, ..request() }), "ramMb");
        assert_eq!(refused(WorkerRequest { name: "a b".into(), ..request() }), "name");
        assert_eq!(refused(WorkerRequest { kinds: Vec::new(), ..request() }), "kinds");
        assert_eq!(refused(WorkerRequest { kinds: vec!["a b".into()], ..request() }), "kinds[0]");
        assert_eq!(refused(WorkerRequest { keeps: vec!["http".into()], ..request() }), "keeps[0]");
        assert_eq!(refused(WorkerRequest { max_parallel: Some(0), ..request() }), "maxParallel");
        assert_eq!(refused(WorkerRequest { resources: [("cpu".into(), 1)].into(), ..request() }), "resources.cpu");
        assert_eq!(refused(WorkerRequest { hostname: Some("x".repeat(257)), ..request() }), "hostname");
    }

    #[test]
    fn a_fraction_of_a_core_is_kept() {
        let offer = Offer::of(WorkerId(1), request(), String::new()).expect("fine");
        assert_eq!(offer.spec.capacity.cpu_milli, 2500);
        let sync = SyncRequest {
            metrics: Some(MachineMetrics { cpu_usage: Some(12.3456), ram_free_mb: Some(7), ..Default::default() }),
            ..Default::default()
        };
        assert_eq!(vitals(&sync).expect("fine").cpu_usage_milli, Some(12_346));
    }
}
