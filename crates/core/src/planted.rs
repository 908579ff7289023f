//! Bugs on purpose. The simulator must be able to find bugs, so each of these can be switched on, one at a time, in a
//! build that exists only for that proof (feature `planted`). In every other build [`Core::has_bug`] is the constant
//! `false` and nothing of this is left.

use crate::core::Core;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// An ended attempt keeps its slot of one gate.
    SlotNotReleased,
    /// What a failed commit decided is let out all the same.
    EffectBeforeCommit,
    /// A report is believed whatever its token and attempt.
    StaleTokenTaken,
    /// Every limit admits one more.
    LimitOffByOne,
    /// A gate that has a free slot again wakes nobody.
    WakeUpLost,
    /// No task is ever lifted by its age.
    AgingDropped,
    /// A task past its deadline is started all the same.
    DeadlineNotCheckedAtPick,
    /// Work that ended well while it was being cancelled counts as completed.
    CancelOverridden,
    /// One retry more than the policy allows.
    RetryOverMax,
    /// Children are not told that their parent ended.
    ReleaseLost,
    /// The end of a task is told twice.
    FinalEventTwice,
    /// A batch's place is not given back.
    BatchPlaceLeaked,
    /// A preempted slot is free for everyone.
    KeepForgotten,
    /// Inside a flow only submit order counts.
    RankIgnored,
    /// A window that ran empty is not read on.
    HungerNotNoted,
    /// A repeated key inside one tick is taken as new.
    KeyOverlayIgnored,
    /// A lost attempt costs nothing, so a crash loop never ends.
    LossNotCounted,
    /// The agent that came first is always served first.
    FairnessTieBroken,
    /// A start takes nothing from a rate.
    RateNotTaken,
    /// The wall clock may go back.
    WallClockBack,
    /// A member that ends keeps its session's seat.
    SeatNotGivenBack,
    /// One member more of a session than may be seated.
    OneSeatMore,
    /// Whoever came last to a session's line goes first.
    LastInLineFirst,
    /// An interrupting message does not wait for the old run's end.
    InterruptOverlaps,
    /// Each message of a burst holds the others back for as long again.
    DebounceWithoutEnd,
    /// A merged message is not kept.
    MergedMessageLost,
    /// A dropped message is not told of.
    DroppedSilently,
    /// A stopped session takes messages that were sent before.
    CutoffForgotten,
    /// A session whose context is nearly full goes on as before.
    ThrottleIgnored,
    /// What a run says of its context counts after a reset too.
    OldGenerationHeard,
    /// The next run is not told of dropped messages.
    DropsNotTold,
    /// A lowered limit leaves the surplus its seats.
    SurplusSeated,
    /// A stop of the whole session passes over who has not joined yet.
    UnjoinedSpared,
    /// A message that a running task may take in is run as well.
    HandedRunsToo,
    /// A heartbeat of the work is answered, and its silence goes on.
    HeartbeatNotCounted,
    /// A stopping server stops also what goes on without it.
    KeptIsStopped,
    /// Whoever asked to be called back is forgotten when a message of somebody else is merged.
    CallbackLost,
    /// The end of a task is posted twice.
    CallbackTwice,
    /// A moment that was fired stays due.
    FiresTwice,
    /// A moment that comes while another is fired is passed over.
    OccurrenceLost,
    /// A run starts beside the one before, though its schedule skips such.
    OverlapIgnored,
    /// An edited schedule begins anew, with moments that have been fired.
    EditRefires,
    /// The end of a task does not reach its run.
    RunNotClosed,
    /// A process that another one replaced is heard all the same.
    FenceIgnored,
    /// What a busy machine reports of its processor keeps nothing away from it.
    GuardIgnored,
    /// Nor what it reports of its memory.
    FreeMemoryIgnored,
    /// A draining worker is given more.
    DrainForgotten,
    /// A worker runs more at once than it said.
    ParallelIgnored,
    /// A retry goes back to where it failed, though somebody else has room.
    FailedPlaceForgotten,
    /// Any worker with room is as good as any other.
    ScoreIgnored,
    /// Who registered is unknown after a restart.
    RegistrationNotKept,
}

impl Bug {
    pub const ALL: [Bug; 51] = [
        Bug::SlotNotReleased,
        Bug::EffectBeforeCommit,
        Bug::StaleTokenTaken,
        Bug::LimitOffByOne,
        Bug::WakeUpLost,
        Bug::AgingDropped,
        Bug::DeadlineNotCheckedAtPick,
        Bug::CancelOverridden,
        Bug::RetryOverMax,
        Bug::ReleaseLost,
        Bug::FinalEventTwice,
        Bug::BatchPlaceLeaked,
        Bug::KeepForgotten,
        Bug::RankIgnored,
        Bug::HungerNotNoted,
        Bug::KeyOverlayIgnored,
        Bug::LossNotCounted,
        Bug::FairnessTieBroken,
        Bug::RateNotTaken,
        Bug::WallClockBack,
        Bug::SeatNotGivenBack,
        Bug::OneSeatMore,
        Bug::LastInLineFirst,
        Bug::InterruptOverlaps,
        Bug::DebounceWithoutEnd,
        Bug::MergedMessageLost,
        Bug::DroppedSilently,
        Bug::CutoffForgotten,
        Bug::ThrottleIgnored,
        Bug::OldGenerationHeard,
        Bug::DropsNotTold,
        Bug::SurplusSeated,
        Bug::UnjoinedSpared,
        Bug::HandedRunsToo,
        Bug::HeartbeatNotCounted,
        Bug::KeptIsStopped,
        Bug::CallbackLost,
        Bug::CallbackTwice,
        Bug::FiresTwice,
        Bug::OccurrenceLost,
        Bug::OverlapIgnored,
        Bug::EditRefires,
        Bug::RunNotClosed,
        Bug::FenceIgnored,
        Bug::GuardIgnored,
        Bug::FreeMemoryIgnored,
        Bug::DrainForgotten,
        Bug::ParallelIgnored,
        Bug::FailedPlaceForgotten,
        Bug::ScoreIgnored,
        Bug::RegistrationNotKept,
    ];
}

impl Core {
    #[cfg(feature = "planted")]
    pub fn has_bug(&self, bug: Bug) -> bool {
        self.planted == Some(bug)
    }

    #[cfg(not(feature = "planted"))]
    pub const fn has_bug(&self, _bug: Bug) -> bool {
        false
    }
}
