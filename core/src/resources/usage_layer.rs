//! The two layers of usage: current and projected.

/// A layer of usage, of quota and of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageLayer {
    /// Usage charged now, including assumed admissions.
    Current,
    /// Current usage minus victims still terminating plus capacity reservations of their preemptors.
    Projected,
}
