//! Kills at random: servers in one thread, supervisors and commands in another.

use std::process::{Command, Stdio};
use std::sync::RwLock;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::dice::Dice;
use crate::process::{self, Grounds, Process, Role};
use crate::scene::Scene;

/// How long a birth is waited for.
const NEWBORN_MAX: Duration = Duration::from_millis(200);

/// What was done to whom.
#[derive(Default, Debug)]
pub struct Kills {
    pub servers_killed: u64,
    pub servers_terminated: u64,
    /// Killed while they still looked at what the one before had left.
    pub servers_killed_early: u64,
    pub supervisors_killed: u64,
    pub supervisors_stopped: u64,
    pub commands_killed: u64,
}

/// Kills the server again and again, and starts it at once. At the end one is there.
pub fn kill_servers(scene: &RwLock<Scene>, mut dice: Dice, until: Instant) -> Kills {
    let mut kills = Kills::default();
    while Instant::now() < until {
        std::thread::park_timeout(dice.ms(200..2500));
        if dice.one_in(3) {
            terminate(scene, &mut dice);
            kills.servers_terminated += 1;
        } else {
            kill(scene);
            kills.servers_killed += 1;
        }
        let mut scene = scene.write().unwrap();
        scene.server_mut().kill9_if_alive();
        while dice.one_in(3) {
            start_and_kill(&scene, &mut dice);
            kills.servers_killed_early += 1;
        }
        scene.start_again();
    }
    kills
}

/// In the middle of whatever it does: requests are under way, so nobody is waited for.
fn kill(scene: &RwLock<Scene>) {
    scene.read().unwrap().signal("KILL");
}

/// A clean stop, which a kill may cut short.
fn terminate(scene: &RwLock<Scene>, dice: &mut Dice) {
    scene.read().unwrap().signal("TERM");
    let limit = if dice.one_in(3) { dice.ms(0..100) } else { dice.ms(20_000..20_001) };
    let began = Instant::now();
    let mut scene = scene.write().unwrap();
    while !scene.server_mut().has_ended() && began.elapsed() < limit {
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// One that does not live to be ready.
fn start_and_kill(scene: &Scene, dice: &mut Dice) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_runyard"))
        .args(["serve", "--no-auth", "--listen", "127.0.0.1:0", "--data"])
        .arg(scene.data())
        .arg("--config")
        .arg(scene.config_file())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::park_timeout(dice.ms(0..250));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Kills and stops supervisors, and kills what they run.
pub fn kill_processes(grounds: &Grounds, mut dice: Dice, until: Instant) -> Kills {
    let mut kills = Kills::default();
    while Instant::now() < until {
        std::thread::park_timeout(dice.ms(20..220));
        let (victim, signal, count) = match dice.between(0..10) {
            0..4 => (supervisor(grounds, &mut dice), Signal::KILL, &mut kills.supervisors_killed),
            4..6 => (supervisor(grounds, &mut dice), Signal::STOP, &mut kills.supervisors_stopped),
            _ => (dice.pick(&supervisors_and_others(grounds).1).cloned(), Signal::KILL, &mut kills.commands_killed),
        };
        if let Some(victim) = victim {
            victim.signal(signal);
            *count += 1;
        }
    }
    kills
}

/// Any, or the next that is born.
fn supervisor(grounds: &Grounds, dice: &mut Dice) -> Option<Process> {
    let (supervisors, _) = supervisors_and_others(grounds);
    let newborn = if dice.one_in(2) { newborn(grounds, &supervisors, dice) } else { None };
    newborn.or_else(|| dice.pick(&supervisors).cloned())
}

fn supervisors_and_others(grounds: &Grounds) -> (Vec<Process>, Vec<Process>) {
    process::all(grounds).into_iter().partition(|process| process.role == Role::Supervisor)
}

/// The next supervisor that is born, a moment after: the narrow places are in its first milliseconds.
fn newborn(grounds: &Grounds, known: &[Process], dice: &mut Dice) -> Option<Process> {
    let give_up_at = Instant::now() + NEWBORN_MAX;
    while Instant::now() < give_up_at {
        let (supervisors, _) = supervisors_and_others(grounds);
        let is_new = |process: &Process| !known.iter().any(|known| known.pid == process.pid);
        if let Some(newborn) = supervisors.into_iter().find(is_new) {
            std::thread::park_timeout(dice.ms(0..15));
            return Some(newborn);
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    None
}
