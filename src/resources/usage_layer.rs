//! The two ways of counting what is in use.

/// Which usage is meant, of quota and of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageLayer {
    /// What is held now.
    Current,
    /// What will be held when everyone who must go is gone and everyone for whom room is kept is in.
    Projected,
}
