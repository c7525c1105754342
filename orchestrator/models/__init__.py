"""One gateway to every model: OpenAI-compatible servers, scripted and recorded models."""
