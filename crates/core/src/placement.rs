//! Where a task goes, without asking every worker.
//!
//! Workers that no shape tells apart form a class: same kinds, labels and named resources, as far as any shape that waits
//! or runs mentions them. Inside a class a ranking finds the best place with room; between classes only a few points for
//! preferred and avoided labels differ. So a start looks at the classes that fit its shape, a handful, and at one ranking
//! in each.

use std::collections::BTreeMap;

use crate::event::WorkerSpec;
use crate::flow::Shape;
use crate::hash::DetMap;
use crate::ids::WorkerId;
use crate::name::Name;
use crate::ranking::{Place, Rank, Ranking, Room};
use crate::slab::{ClassIx, ShapeIx, Slab};

/// What a preferred or an avoided label is worth, in millionths of a point.
pub(crate) const LABEL_SCORE: i64 = 20_000_000;

#[derive(Debug, Default)]
pub(crate) struct Placement {
    shapes: Slab<ShapeIx, Wish>,
    shape_by_key: BTreeMap<Shape, ShapeIx>,
    classes: Slab<ClassIx, Class>,
    class_by_traits: BTreeMap<Traits, ClassIx>,
    mentions: Mentions,
    /// Where each worker stands; who may be given nothing stands nowhere.
    seats: DetMap<WorkerId, Seat>,
}

#[derive(Debug)]
struct Wish {
    shape: Shape,
    n_users: u32,
    /// Classes that fit it, with the points that its labels are worth there.
    classes: Vec<(i64, ClassIx)>,
}

#[derive(Debug)]
struct Class {
    traits: Traits,
    ranking: Ranking,
}

#[derive(Debug)]
struct Seat {
    class: ClassIx,
    rank: Rank,
}

/// What shapes can tell of a worker.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Traits {
    kinds: Vec<Name>,
    labels: Vec<(Name, Name)>,
    named: Vec<Name>,
}

/// What shapes speak of, each with how many do.
#[derive(Debug, Default)]
struct Mentions {
    kinds: BTreeMap<Name, u32>,
    labels: BTreeMap<(Name, Name), u32>,
    /// Keys of labels by whose values tasks are spread.
    label_keys: BTreeMap<Name, u32>,
    named: BTreeMap<Name, u32>,
}

/// The best place of a class for a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Offer {
    /// Tasks of its flow that run where it would, for one that is to be spread.
    pub n_beside: u32,
    pub rank: Rank,
}

impl Placement {
    /// Somebody asks for this shape from now on. Gives the workers whose class may have changed with it.
    pub fn mention(&mut self, shape: &Shape) -> (ShapeIx, News) {
        if let Some(&ix) = self.shape_by_key.get(shape) {
            self.shapes[ix].n_users += 1;
            return (ix, News::None);
        }
        let news = self.mentions.add(shape);
        let ix = self.shapes.insert(Wish { shape: shape.clone(), n_users: 1, classes: Vec::new() });
        self.shape_by_key.insert(shape.clone(), ix);
        self.match_shape(ix);
        (ix, news)
    }

    pub fn unmention(&mut self, ix: ShapeIx) {
        let wish = &mut self.shapes[ix];
        wish.n_users -= 1;
        if wish.n_users == 0 {
            let wish = self.shapes.remove(ix);
            self.shape_by_key.remove(&wish.shape);
            // Classes stay finer than they need to be; nobody notices.
            self.mentions.subtract(&wish.shape);
        }
    }

    pub fn shape(&self, ix: ShapeIx) -> &Shape {
        &self.shapes[ix].shape
    }

    /// Puts a worker where it belongs now, or takes it out.
    pub fn seat(&mut self, spec: &WorkerSpec, place: Option<Place>) {
        let traits = place.map(|_| self.mentions.traits(spec));
        let class = traits.map(|traits| self.class_for(traits));
        if let Some(old) = self.seats.remove(&spec.id) {
            self.classes[old.class].ranking.remove(&old.rank);
            if Some(old.class) != class {
                self.drop_if_empty(old.class);
            }
        }
        if let (Some(class), Some(place)) = (class, place) {
            self.classes[class].ranking.insert(place);
            self.seats.insert(spec.id, Seat { class, rank: place.rank });
        }
    }

    /// As [`Self::seat`] for one whose traits are as they were; one that stands nowhere stays there.
    pub fn reseat(&mut self, worker: WorkerId, place: impl FnOnce() -> Place) {
        let Some(seat) = self.seats.get_mut(&worker) else { return };
        let place = place();
        self.classes[seat.class].ranking.replace(&seat.rank, place);
        seat.rank = place.rank;
    }

    pub fn place_of(&self, worker: WorkerId) -> Option<Place> {
        let seat = self.seats.get(&worker)?;
        self.classes[seat.class].ranking.places().find(|place| place.rank == seat.rank)
    }

    /// The best place for a shape among those that the caller agrees to. `n_beside` says for a value of the label by which
    /// the shape is spread how many run there.
    pub fn best(
        &self,
        shape: ShapeIx,
        need: &Room,
        n_beside: impl Fn(&str) -> u32,
        mut agrees: impl FnMut(WorkerId) -> bool,
    ) -> Option<Offer> {
        let wish = &self.shapes[shape];
        let mut best: Option<Offer> = None;
        for &(points, class) in &wish.classes {
            let class = &self.classes[class];
            let n_beside = match &wish.shape.place.spread_by {
                Some(key) => n_beside(class.traits.label(key)),
                None => 0,
            };
            let offer = |rank: &Rank| Offer { n_beside, rank: Rank { score: rank.score + points, ..*rank } };
            // What follows it in this class is worse still.
            let is_beaten = |rank: &Rank| best.is_some_and(|best| best <= offer(rank));
            let found = class.ranking.first(need, is_beaten, |rank| agrees(rank.worker));
            best = found.as_ref().map(offer).or(best);
        }
        best
    }

    /// Points that the shape's labels are worth on this worker.
    pub fn label_points(shape: &Shape, labels: &[(Name, Name)]) -> i64 {
        let n = |wanted: &[(Name, Name)]| wanted.iter().filter(|label| labels.contains(label)).count() as i64;
        LABEL_SCORE * (n(&shape.place.avoid) - n(&shape.place.prefer))
    }

    fn class_for(&mut self, traits: Traits) -> ClassIx {
        if let Some(&ix) = self.class_by_traits.get(&traits) {
            return ix;
        }
        let ix = self.classes.insert(Class { traits: traits.clone(), ranking: Ranking::default() });
        for shape in self.shapes.indices() {
            if let Some(points) = traits.fit(&self.shapes[shape].shape) {
                self.shapes[shape].classes.push((points, ix));
            }
        }
        self.class_by_traits.insert(traits, ix);
        ix
    }

    fn drop_if_empty(&mut self, ix: ClassIx) {
        if !self.classes[ix].ranking.is_empty() {
            return;
        }
        let class = self.classes.remove(ix);
        self.class_by_traits.remove(&class.traits);
        for shape in self.shapes.indices() {
            self.shapes[shape].classes.retain(|(_, other)| *other != ix);
        }
    }

    fn match_shape(&mut self, ix: ShapeIx) {
        let shape = &self.shapes[ix].shape;
        let fitting = self.classes.iter().filter_map(|(class, Class { traits, .. })| Some((traits.fit(shape)?, class)));
        self.shapes[ix].classes = fitting.collect();
    }
}

/// What a new shape speaks of that none did before: workers that have it may belong to another class now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum News {
    None,
    Some(Box<Fresh>),
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fresh {
    kinds: Vec<Name>,
    labels: Vec<(Name, Name)>,
    label_keys: Vec<Name>,
    named: Vec<Name>,
}

impl Fresh {
    pub fn concerns(&self, spec: &WorkerSpec) -> bool {
        spec.kinds.iter().any(|kind| self.kinds.contains(kind))
            || spec.labels.iter().any(|label| self.labels.contains(label) || self.label_keys.contains(&label.0))
            || spec.capacity.named.iter().any(|(name, _)| self.named.contains(name))
    }
}

impl Mentions {
    fn add(&mut self, shape: &Shape) -> News {
        let mut fresh = Fresh::default();
        count_up(&mut self.kinds, &shape.kind, &mut fresh.kinds);
        labels_of(shape).for_each(|label| count_up(&mut self.labels, label, &mut fresh.labels));
        shape.place.spread_by.iter().for_each(|key| count_up(&mut self.label_keys, key, &mut fresh.label_keys));
        let named = &shape.resources.named;
        named.iter().for_each(|(name, _)| count_up(&mut self.named, name, &mut fresh.named));
        if fresh == Fresh::default() { News::None } else { News::Some(Box::new(fresh)) }
    }

    fn subtract(&mut self, shape: &Shape) {
        count_down(&mut self.kinds, &shape.kind);
        labels_of(shape).for_each(|label| count_down(&mut self.labels, label));
        shape.place.spread_by.iter().for_each(|key| count_down(&mut self.label_keys, key));
        shape.resources.named.iter().for_each(|(name, _)| count_down(&mut self.named, name));
    }

    fn traits(&self, spec: &WorkerSpec) -> Traits {
        let is_told =
            |label: &&(Name, Name)| self.labels.contains_key(*label) || self.label_keys.contains_key(&label.0);
        let mut traits = Traits {
            kinds: spec.kinds.iter().filter(|kind| self.kinds.contains_key(*kind)).cloned().collect(),
            labels: spec.labels.iter().filter(is_told).cloned().collect(),
            named: spec
                .capacity
                .named
                .iter()
                .map(|(name, _)| name)
                .filter(|n| self.named.contains_key(*n))
                .cloned()
                .collect(),
        };
        traits.kinds.sort_unstable();
        traits.labels.sort_unstable();
        traits.named.sort_unstable();
        traits
    }
}

fn labels_of(shape: &Shape) -> impl Iterator<Item = &(Name, Name)> {
    shape.place.require.iter().chain(&shape.place.prefer).chain(&shape.place.avoid)
}

fn count_up<K: Ord + Clone>(counts: &mut BTreeMap<K, u32>, key: &K, fresh: &mut Vec<K>) {
    let n = counts.entry(key.clone()).or_default();
    *n += 1;
    if *n == 1 {
        fresh.push(key.clone());
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    let n = counts.get_mut(key).expect("what is no longer mentioned was");
    *n -= 1;
    if *n == 0 {
        counts.remove(key);
    }
}

impl Traits {
    /// The points its labels are worth, when the shape fits at all.
    fn fit(&self, shape: &Shape) -> Option<i64> {
        let fits = self.kinds.contains(&shape.kind)
            && shape.place.require.iter().all(|label| self.labels.contains(label))
            && shape.resources.named.iter().all(|(name, n)| *n == 0 || self.named.contains(name));
        fits.then(|| Placement::label_points(shape, &self.labels))
    }

    fn label(&self, key: &Name) -> &str {
        label(&self.labels, key)
    }
}

/// The value of a label; nothing for who has none of that key.
pub(crate) fn label<'a>(labels: &'a [(Name, Name)], key: &str) -> &'a str {
    labels.iter().find(|(other, _)| &**other == key).map_or("", |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Place as Wanted, Resources};

    const POINT: i64 = 1_000_000;

    fn seat(placement: &mut Placement, worker: u128, labels: &[(&str, &str)], points: i64) {
        let spec = WorkerSpec {
            id: WorkerId(worker),
            name: Name::new("w"),
            kinds: vec!["process".into()],
            keeps: Vec::new(),
            capacity: Resources::default(),
            parallel_max: None,
            labels: labels.iter().map(|&(key, value)| (Name::new(key), Name::new(value))).collect(),
            embedded: false,
        };
        let rank = Rank { score: points * POINT, cpu_short_milli: 0, worker: spec.id };
        placement.seat(&spec, Some(Place { rank, room: Room { cpu_milli: 1000, ram_mb: 1000, heads: 1 } }));
    }

    /// A preferred class is worth looking through even when its first place, by its load alone, is worse than what
    /// another class has already offered.
    #[test]
    fn who_does_not_agree_is_passed_over_in_a_preferred_class_too() {
        let mut placement = Placement::default();
        let place = Wanted { prefer: vec![("zone".into(), "a".into())], ..Wanted::default() };
        let shape = Shape { kind: "process".into(), resources: Resources::default(), place };
        let (ix, _) = placement.mention(&shape);
        seat(&mut placement, 1, &[], 10);
        seat(&mut placement, 2, &[("zone", "a")], 15);
        seat(&mut placement, 3, &[("zone", "a")], 16);
        let need = Room { cpu_milli: 0, ram_mb: 0, heads: 1 };
        let best = placement.best(ix, &need, |_| 0, |id| id != WorkerId(2)).expect("there is room");
        assert_eq!((best.rank.worker, best.rank.score), (WorkerId(3), (16 - 20) * POINT));
    }
}
