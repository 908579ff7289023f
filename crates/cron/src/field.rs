//! A field as a set of numbers, with the way it was written as far as that means something.

/// Numbers up to 63, each a bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Field {
    bits: u64,
    /// Written with a leading `*`: it restricts nothing by itself.
    is_star: bool,
}

impl Field {
    pub fn of(numbers: impl IntoIterator<Item = u32>) -> Field {
        Field { bits: numbers.into_iter().fold(0, |bits, n| bits | 1 << n), is_star: false }
    }

    pub fn star(self) -> Field {
        Field { is_star: true, ..self }
    }

    pub fn with(self, other: Field) -> Field {
        Field { bits: self.bits | other.bits, is_star: self.is_star || other.is_star }
    }

    pub fn is_star(self) -> bool {
        self.is_star
    }

    pub fn has(self, n: u32) -> bool {
        self.bits >> n & 1 == 1
    }

    /// The first that is not below.
    pub fn from(self, n: u32) -> Option<u32> {
        let rest = self.bits.checked_shr(n).unwrap_or(0);
        (rest != 0).then(|| n + rest.trailing_zeros())
    }

    pub fn first(self) -> u32 {
        self.bits.trailing_zeros()
    }

    pub fn numbers(self) -> impl Iterator<Item = u32> {
        (0..64).filter(move |n| self.has(*n))
    }

    pub fn count(self) -> u32 {
        self.bits.count_ones()
    }

    pub fn is_empty(self) -> bool {
        self.bits == 0
    }
}
