"""The peers: the same training, written as users of other libraries would write it.

Each peer is a module with two names: `REQUIRES`, the packages that it imports, and `make_stepper`, which prepares the
training of a `PeerSetting`.
"""
