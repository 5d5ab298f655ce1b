"""Energy of the same event in another process: from a table's node to that of a chip on paper.

Relative energies at 0.8 V as Stillmaker and Baas fitted them to predictive models (Integration 58, 2017), continued
below 7 nm with IRDS (the curve that hwcomponents 1.0.114 codes). Between nodes the logarithm of the energy is linear in
that of the node.

How far to trust it: least over many nodes. From 45 to 7 nm it is a lower end: arithmetic as Horowitz (ISSCC 2014) and
Jouppi et al. (ISCA 2021, table 2) list it falls to 0.23-0.36 of its energy, where the curve says 0.09, for wires and
registers scale less than gates and the later list counts more of them. So take the table entry of the nearest node, and
scale that.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

#: node [nm] -> energy relative to 45 nm
RELATIVE_ENERGY: Mapping[float, float] = {
    45.0: 1.0,
    22.0: 0.294,
    16.0: 0.174,
    12.0: 0.1287,
    7.0: 0.0945,
    5.0: 0.0799,
    4.0: 0.0714,
    3.0: 0.0619,
}


def energy_ratio(from_nm: float, to_nm: float) -> float:
    """Energy of an event at node `to_nm` [nm] over its energy at `from_nm` [nm]. Raises ValueError outside 3-45 nm."""
    return _relative(to_nm) / _relative(from_nm)


def _relative(node_nm: float) -> float:
    nodes = sorted(RELATIVE_ENERGY)
    if not nodes[0] <= node_nm <= nodes[-1]:
        raise ValueError(f"{node_nm:g} nm: energies are known from {nodes[0]:g} to {nodes[-1]:g} nm")
    logs = [np.log(RELATIVE_ENERGY[node]) for node in nodes]
    return float(np.exp(np.interp(np.log(node_nm), np.log(nodes), logs)))
