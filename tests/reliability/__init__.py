"""Tests of reliability, one file for each promise of docs/reliability.md. `make torture` runs their long form."""
