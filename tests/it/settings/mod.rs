//! The configuration, and what each setting and gate changes.

mod configure;
mod feature_gates;
mod gate_effects;
mod honoured;
