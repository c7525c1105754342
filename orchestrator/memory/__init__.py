"""What the model is shown: the window of a run's transcript, as bytes that are made once."""
