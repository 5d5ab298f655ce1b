"""The only writers besides `cli.py`: HDF5 traces, tables and figures."""
