"""The top of a tree and its subtrees, grown without a cluster."""

import numpy as np

from mondrian_forest._core.arrays.grove import allocate_grove
from mondrian_forest._core.arrays.vector import padded_width
from mondrian_forest._core.growth.top import (
    CLOSED,
    LEAF,
    Joining,
    Left,
    Top,
    follow_cuts,
    grow_subtree,
    look_left,
    no_reports,
    report,
)


def grow_in_parts(rows, labels, sizes, growth, seed, most_rows, *, forgets_time=False):
    """Return top, tree and row order of a tree over parts of the given sizes."""
    n_features = rows.shape[1]
    top = Top(
        seed,
        n_features,
        growth,
        most_rows,
    )
    ends = np.cumsum(sizes)
    parts = [
        (rows[end - size : end].copy(), labels[end - size : end].copy())
        for size, end in zip(sizes, ends, strict=True)
    ]
    blocks = [np.zeros(size, np.int32) for size in sizes]
    first = 0
    while True:
        joined = no_reports(top.n_blocks - first, n_features)
        for (part, values), mine in zip(parts, blocks, strict=True):
            news = no_reports(top.n_blocks - first, n_features)
            report(part, values, mine, first, news)
            joined = joined.joined(news)
        first = top.n_blocks
        candidates = top.draw(joined)
        if candidates is None:
            break
        left = None
        if growth.n_candidate_splits > 1:
            shape = candidates.feature.shape
            left = Left(np.zeros(shape, np.int64), np.zeros(shape))
            for (part, values), mine in zip(parts, blocks, strict=True):
                more = Left(np.zeros(shape, np.int64), np.zeros(shape))
                look_left(part, values, mine, candidates, more)
                left = left.joined(more)
        cuts = top.cut(candidates, left)
        for (part, _), mine in zip(parts, blocks, strict=True):
            follow_cuts(part, cuts, mine)
    everywhere = np.concatenate(blocks)
    subtrees, leaf_rows = {}, {}
    for block, kind in enumerate(top.kind):
        chosen = np.flatnonzero(everywhere == block).astype(np.int32)
        if kind == LEAF:
            leaf_rows[block] = chosen
        elif kind == CLOSED:
            padded = np.zeros((len(chosen), padded_width(n_features)), np.float32)
            padded[:, :n_features] = rows[chosen]
            subtree, order = grow_subtree(
                padded,
                labels[chosen],
                0.0 if forgets_time else top.start_time[block],
                growth,
                top.random_state(block),
                allocate_grove(1, len(chosen), n_features, is_linked=False).room(0),
            )
            subtrees[block] = subtree, chosen[order]
    order = np.full(len(rows), -1, np.int32)
    grove = allocate_grove(1, *rows.shape, is_linked=False)
    grove.tallies["log_gain"] = np.nan  # as new memory may be
    joining = Joining(top, grove.room(0), order)
    joining.add({}, leaf_rows)
    for block in top.blocks_of(CLOSED):
        joining.add({block: subtrees[block]}, leaf_rows)
    grove.sizes[0] = joining.finish()
    return top, grove.tree(0), order
