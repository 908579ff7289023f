//! Things with small stable indices, so that the sets that refer to them hold four bytes instead of a name.

use std::ops::{Index, IndexMut};

pub(crate) trait Ix: Copy {
    fn new(n: u32) -> Self;
    fn get(self) -> usize;
}

macro_rules! ix {
    ($name:ident) => {
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub(crate) struct $name(u32);

        impl Ix for $name {
            fn new(n: u32) -> Self {
                $name(n)
            }
            fn get(self) -> usize {
                self.0 as usize
            }
        }
    };
}

impl FlowIx {
    /// The one after it, present or not: where a walk goes on.
    pub fn next(self) -> FlowIx {
        FlowIx(self.0.wrapping_add(1))
    }
}

ix!(AgentIx);
ix!(FlowIx);
ix!(GateIx);
ix!(ShapeIx);
ix!(ClassIx);
ix!(SlotIx);

#[derive(Debug)]
pub(crate) struct Slab<I, T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
    index: std::marker::PhantomData<I>,
}

impl<I, T> Default for Slab<I, T> {
    fn default() -> Self {
        Slab { items: Vec::new(), free: Vec::new(), index: std::marker::PhantomData }
    }
}

impl<I: Ix, T> Slab<I, T> {
    pub fn insert(&mut self, item: T) -> I {
        match self.free.pop() {
            Some(n) => {
                self.items[n as usize] = Some(item);
                I::new(n)
            }
            None => {
                self.items.push(Some(item));
                I::new(self.items.len() as u32 - 1)
            }
        }
    }

    pub fn remove(&mut self, ix: I) -> T {
        self.free.push(ix.get() as u32);
        self.items[ix.get()].take().expect("an index names a thing that is there")
    }

    pub fn contains(&self, ix: I) -> bool {
        self.items.get(ix.get()).is_some_and(Option::is_some)
    }

    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.items.iter().enumerate().filter_map(|(n, item)| Some((I::new(n as u32), item.as_ref()?)))
    }

    pub fn indices(&self) -> Vec<I> {
        self.iter().map(|(ix, _)| ix).collect()
    }

    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
}

impl<I: Ix, T> Index<I> for Slab<I, T> {
    type Output = T;
    fn index(&self, ix: I) -> &T {
        self.items[ix.get()].as_ref().expect("an index names a thing that is there")
    }
}

impl<I: Ix, T> IndexMut<I> for Slab<I, T> {
    fn index_mut(&mut self, ix: I) -> &mut T {
        self.items[ix.get()].as_mut().expect("an index names a thing that is there")
    }
}
