"""The audit of claims: `judge.audit` turns a claims file into verdicts; every other file judges kinds of claims."""
