//! Workers in the order in which a task would take them, so that the first with room is found without asking them all.
//!
//! They stand in chunks of fifty or so, and each chunk knows the most room that any of its workers has: a task passes
//! whole chunks that have nothing for it. Ten thousand workers are two hundred chunks, whatever shapes are asked for.

use crate::ids::WorkerId;

/// Beyond it a chunk is cut in two.
const CHUNK_MAX: usize = 64;

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
    /// Never empty, ascending.
    ranks: Vec<Rank>,
    /// What each of them has. Apart from the ranks, because a search looks at every room and at few ranks.
    rooms: Vec<Room>,
    most: Room,
}

impl Ranking {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub fn insert(&mut self, place: Place) {
        let at = self.chunk_of(&place.rank).min(self.chunks.len().saturating_sub(1));
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(Chunk { ranks: vec![place.rank], rooms: vec![place.room], most: place.room });
            return;
        };
        chunk.insert(place);
        if chunk.ranks.len() > CHUNK_MAX {
            let rest = chunk.split();
            self.chunks.insert(at + 1, rest);
        }
    }

    pub fn remove(&mut self, rank: &Rank) {
        let at = self.chunk_of(rank);
        let chunk = &mut self.chunks[at];
        let room = chunk.remove(rank);
        if chunk.ranks.is_empty() {
            self.chunks.remove(at);
        } else {
            chunk.shrink(&room, &Room::default());
        }
    }

    /// Who stood at this rank stands elsewhere, most often among the same neighbours.
    pub fn replace(&mut self, rank: &Rank, place: Place) {
        let at = self.chunk_of(rank);
        let chunk = &mut self.chunks[at];
        let stays = chunk.ranks[0] <= place.rank && chunk.ranks.last().is_some_and(|last| place.rank <= *last);
        if !stays {
            self.remove(rank);
            self.insert(place);
            return;
        }
        let room = chunk.remove(rank);
        chunk.insert(place);
        chunk.shrink(&room, &place.room);
    }

    /// The first place with so much room that the caller agrees to, unless one that is beaten comes before it.
    pub fn first(
        &self,
        need: &Room,
        is_beaten: impl Fn(&Rank) -> bool,
        mut agrees: impl FnMut(&Rank) -> bool,
    ) -> Option<Rank> {
        for chunk in &self.chunks {
            if is_beaten(&chunk.ranks[0]) {
                return None;
            }
            if !chunk.most.has(need) {
                continue;
            }
            let roomy = chunk.rooms.iter().zip(&chunk.ranks).filter(|(room, _)| room.has(need));
            for (_, rank) in roomy {
                if is_beaten(rank) {
                    return None;
                }
                if agrees(rank) {
                    return Some(*rank);
                }
            }
        }
        None
    }

    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        let places = |chunk: &'_ Chunk| std::iter::zip(chunk.ranks.clone(), chunk.rooms.clone());
        self.chunks.iter().flat_map(places).map(|(rank, room)| Place { rank, room })
    }

    /// The first chunk that does not end before this rank.
    fn chunk_of(&self, rank: &Rank) -> usize {
        self.chunks.partition_point(|chunk| chunk.ranks.last().is_some_and(|last| last < rank))
    }
}

impl Chunk {
    fn insert(&mut self, place: Place) {
        let spot = self.ranks.partition_point(|other| *other < place.rank);
        self.ranks.insert(spot, place.rank);
        self.rooms.insert(spot, place.room);
        self.most.grow(&place.room);
    }

    /// The caller measures it again.
    fn remove(&mut self, rank: &Rank) -> Room {
        let spot = self.ranks.binary_search(rank).expect("a worker stands at its rank");
        self.ranks.remove(spot);
        self.rooms.remove(spot)
    }

    fn split(&mut self) -> Chunk {
        let (ranks, rooms) = (self.ranks.split_off(CHUNK_MAX / 2), self.rooms.split_off(CHUNK_MAX / 2));
        let mut rest = Chunk { ranks, rooms, most: Room::default() };
        self.measure();
        rest.measure();
        rest
    }

    /// One of its places has less room than before. Only if nobody had more may that be less for all.
    fn shrink(&mut self, from: &Room, to: &Room) {
        let was_most = |from: u32, to: u32, most: u32| to < from && from == most;
        if was_most(from.cpu_milli, to.cpu_milli, self.most.cpu_milli)
            || was_most(from.ram_mb, to.ram_mb, self.most.ram_mb)
            || was_most(from.heads, to.heads, self.most.heads)
        {
            self.measure();
        }
    }

    fn measure(&mut self) {
        self.most = Room::default();
        self.rooms.iter().for_each(|room| self.most.grow(room));
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
            assert_eq!(ranking.first(&need, |_| false, |_| true), scanned);
        }
        assert_eq!(ranking.places().count(), all.len());
        assert!(ranking.chunks.len() > 4, "it was cut");
    }

    #[test]
    fn who_does_not_agree_is_passed_over() {
        let mut ranking = Ranking::default();
        (0..300).for_each(|n| ranking.insert(place(n, n as u128, 1000)));
        let need = Room { cpu_milli: 500, ram_mb: 0, heads: 1 };
        let found = ranking.first(&need, |_| false, |rank| rank.score >= 200).expect("there is one");
        assert_eq!(found.score, 200);
    }
}
