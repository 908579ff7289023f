//! Workers in the order in which a task would take them, so that the first with room is found without asking them all.
//!
//! They stand in chunks of a hundred or so, and each chunk knows the most room that any of its workers has: a task passes
//! whole chunks that have nothing for it. Ten thousand workers are a hundred chunks, whatever shapes are asked for.

use crate::ids::WorkerId;

/// Beyond it a chunk is cut in two.
const CHUNK_MAX: usize = 128;

/// How good a place is: less is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    /// In millionths of a point.
    pub score: i64,
    /// Ties go to the most free cores.
    pub cpu_short_milli: u32,
    pub worker: WorkerId,
}

/// What a worker could still take, as far as a chunk needs to know it. It may be less than that, never more: who finds a
/// place here asks the worker itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Room {
    pub cpu_milli: u32,
    pub ram_mb: u32,
    pub heads: u32,
}

impl Room {
    pub fn has(&self, need: &Room) -> bool {
        self.cpu_milli >= need.cpu_milli && self.ram_mb >= need.ram_mb && self.heads >= need.heads
    }

    fn grow(&mut self, other: &Room) {
        self.cpu_milli = self.cpu_milli.max(other.cpu_milli);
        self.ram_mb = self.ram_mb.max(other.ram_mb);
        self.heads = self.heads.max(other.heads);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub rank: Rank,
    pub room: Room,
}

#[derive(Debug, Default)]
pub(crate) struct Ranking {
    chunks: Vec<Chunk>,
}

#[derive(Debug, Default)]
struct Chunk {
    /// Never empty, by rank.
    places: Vec<Place>,
    most: Room,
}

impl Ranking {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub fn insert(&mut self, place: Place) {
        let at = self.chunk_of(&place.rank).min(self.chunks.len().saturating_sub(1));
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(Chunk { places: vec![place], most: place.room });
            return;
        };
        let spot = chunk.places.partition_point(|other| other.rank < place.rank);
        chunk.places.insert(spot, place);
        chunk.most.grow(&place.room);
        if chunk.places.len() > CHUNK_MAX {
            let mut rest = Chunk { places: chunk.places.split_off(CHUNK_MAX / 2), most: Room::default() };
            chunk.measure();
            rest.measure();
            self.chunks.insert(at + 1, rest);
        }
    }

    pub fn remove(&mut self, rank: &Rank) {
        let at = self.chunk_of(rank);
        let chunk = &mut self.chunks[at];
        let spot = chunk.places.binary_search_by(|other| other.rank.cmp(rank)).expect("a worker stands at its rank");
        chunk.places.remove(spot);
        if chunk.places.is_empty() {
            self.chunks.remove(at);
        } else {
            chunk.measure();
        }
    }

    /// The first place with so much room that the caller agrees to.
    pub fn first(&self, need: &Room, mut agrees: impl FnMut(&Rank) -> bool) -> Option<Rank> {
        let chunks = self.chunks.iter().filter(|chunk| chunk.most.has(need));
        let places = chunks.flat_map(|chunk| &chunk.places);
        places.filter(|place| place.room.has(need)).map(|place| place.rank).find(|rank| agrees(rank))
    }

    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.chunks.iter().flat_map(|chunk| &chunk.places)
    }

    /// The first chunk that does not end before this rank.
    fn chunk_of(&self, rank: &Rank) -> usize {
        self.chunks.partition_point(|chunk| chunk.places.last().is_some_and(|last| last.rank < *rank))
    }
}

impl Chunk {
    fn measure(&mut self) {
        self.most = Room::default();
        for place in &self.places {
            self.most.grow(&place.room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    fn place(score: i64, worker: u128, cpu_milli: u32) -> Place {
        let rank = Rank { score, cpu_short_milli: 0, worker: WorkerId(worker) };
        Place { rank, room: Room { cpu_milli, ram_mb: 100, heads: 1 } }
    }

    #[test]
    fn the_first_place_with_room_is_the_one_a_scan_finds() {
        let mut ranking = Ranking::default();
        let mut all: Vec<Place> = Vec::new();
        for n in 0..4000u64 {
            let draw = mix(n);
            if draw.is_multiple_of(3) && !all.is_empty() {
                let gone = all.swap_remove((draw / 3) as usize % all.len());
                ranking.remove(&gone.rank);
            } else {
                let new = place((draw % 500) as i64, u128::from(n), (mix(draw) % 8) as u32 * 1000);
                all.push(new);
                ranking.insert(new);
            }
            let need = Room { cpu_milli: (mix(n ^ 7) % 9) as u32 * 1000, ram_mb: 10, heads: 1 };
            let scanned = all.iter().filter(|place| place.room.has(&need)).map(|place| place.rank).min();
            assert_eq!(ranking.first(&need, |_| true), scanned);
        }
        assert_eq!(ranking.places().count(), all.len());
        assert!(ranking.chunks.len() > 4, "it was cut");
    }

    #[test]
    fn who_does_not_agree_is_passed_over() {
        let mut ranking = Ranking::default();
        (0..300).for_each(|n| ranking.insert(place(n, n as u128, 1000)));
        let need = Room { cpu_milli: 500, ram_mb: 0, heads: 1 };
        let found = ranking.first(&need, |rank| rank.score >= 200).expect("there is one");
        assert_eq!(found.score, 200);
    }
}
