//! Checkpoints and clean-up against a store that damages, loses and ages what it is told to.

mod checkpoints;
mod clean_up;
mod law;
mod local;
mod memory;
mod rig;
