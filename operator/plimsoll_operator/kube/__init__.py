"""The API server: requests, who we are to it, the Lease. No other room has its client.

login             who we are, looked up again once that has expired
api               a few verbs on plain JSON, and errors that say what to do
ttl_cache         answers of the API server, kept for a short while
kubeconfig        which cluster and namespace a person means, as kubectl reads it
times             times as the API server writes them
lease             which replica decides
template_fields   fields of a person's pod template
"""
