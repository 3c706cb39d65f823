"""Servers on the loopback address that the tests talk to: an OpenAI-compatible one that misbehaves on demand, and llama.cpp's."""
