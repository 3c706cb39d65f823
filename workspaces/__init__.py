"""The git repository of a run: what the agent knows and what it made. A leaf: it knows neither the journal
nor agents.
"""
