//! Small typed indices. An id is a position in one arena and nothing else.

use std::fmt;

/// Declares a `u32` (or smaller) index type with `ix()` for array access.
#[macro_export]
macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub $repr);
        impl $name {
            /// "No such thing": the largest value of the representation.
            pub const NONE: $name = $name(<$repr>::MAX);
            /// Position in the arena.
            #[inline(always)]
            pub fn ix(self) -> usize {
                self.0 as usize
            }
            /// Id of the arena position `i`.
            #[inline(always)]
            pub fn from_ix(i: usize) -> Self {
                $name(i as $repr)
            }
            /// True for every value but [`Self::NONE`].
            #[inline(always)]
            pub fn is_some(self) -> bool {
                self.0 != <$repr>::MAX
            }
            /// True for [`Self::NONE`].
            #[inline(always)]
            pub fn is_none(self) -> bool {
                self.0 == <$repr>::MAX
            }
        }
    };
}

id_type!(
    /// A logical CPU (a hardware thread), numbered as Linux numbers it: 0 … 1023.
    Cpu(u16)
);
id_type!(
    /// A task (thread). `TaskId(0) … TaskId(nr_cpus - 1)` are the idle tasks of the CPUs.
    TaskId(u32)
);

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
