//! Tasks in the order of a number. Most sessions have one or two members in memory, so a sorted list is smaller and
//! quicker than a tree.

use std::ops::Range;

use crate::ids::TaskId;

#[derive(Clone, Debug, Default)]
pub(crate) struct Roll {
    tasks: Vec<(u64, TaskId)>,
}

impl Roll {
    pub fn insert(&mut self, number: u64, task: TaskId) {
        match self.place(number) {
            Ok(at) => self.tasks[at].1 = task,
            Err(at) => self.tasks.insert(at, (number, task)),
        }
    }

    pub fn remove(&mut self, number: u64) {
        if let Ok(at) = self.place(number) {
            self.tasks.remove(at);
        }
    }

    pub fn get(&self, number: u64) -> Option<TaskId> {
        self.place(number).ok().map(|at| self.tasks[at].1)
    }

    pub fn first(&self) -> Option<(u64, TaskId)> {
        self.tasks.first().copied()
    }

    pub fn last(&self) -> Option<(u64, TaskId)> {
        self.tasks.last().copied()
    }

    pub fn values(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.tasks.iter().map(|&(_, task)| task)
    }

    pub fn range(&self, range: Range<u64>) -> impl Iterator<Item = TaskId> + '_ {
        let from = self.tasks.partition_point(|&(number, _)| number < range.start);
        self.tasks[from..].iter().take_while(move |&&(number, _)| number < range.end).map(|&(_, task)| task)
    }

    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// New ones mostly come last.
    fn place(&self, number: u64) -> Result<usize, usize> {
        match self.tasks.last() {
            Some(&(last, _)) if last < number => Err(self.tasks.len()),
            _ => self.tasks.binary_search_by_key(&number, |&(number, _)| number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_is_in_order_whatever_the_order_of_arrival() {
        let mut roll = Roll::default();
        for number in [5, 1, 9, 3, 5] {
            roll.insert(number, TaskId(u128::from(number)));
        }
        assert_eq!(roll.values().map(|task| task.0).collect::<Vec<_>>(), [1, 3, 5, 9]);
        assert_eq!(roll.range(2..9).map(|task| task.0).collect::<Vec<_>>(), [3, 5]);
        roll.remove(1);
        roll.remove(4);
        assert_eq!((roll.first(), roll.last(), roll.len()), (Some((3, TaskId(3))), Some((9, TaskId(9))), 3));
        assert_eq!((roll.get(5), roll.get(4)), (Some(TaskId(5)), None));
    }
}
