//! Criterion benches over the registry; `results/` holds runs with their command, commit and machine.
