//! Property tests of the views: they say what the engine decides.

mod preemptors;
mod simulated_obstacles;
