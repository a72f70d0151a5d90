"""Search: Optuna on the networks that fit a latency budget, scored by evaluators, confirmed on the device."""
