"""Trees whose cuts look at the labels, that learn and forget row by row: slow, and in plain words.

Every node that is cut keeps its candidates, however few rows it has, and knows its rows. Times are
kept as durations, from the time of the parent on. A test that is to fail overrides a method.
"""

import math


class Node:
    """A node and all below it."""

    def __init__(self, rows, box):
        self.rows, self.box = rows, box
        self.duration = math.inf
        self.candidates, self.best, self.children = [], 0, []

    def walk(self, depth=0):
        """Yield all nodes with their depths, parents first."""
        yield self, depth
        for child in self.children:
            yield from child.walk(depth + 1)


class SlowTree:
    """A tree on some rows of a table of lists; ``random`` is a ``random.Random``."""

    def __init__(self, table, labels, rows, n_candidates, min_samples_split, random):
        self.table, self.labels, self.random = table, labels, random
        self.n_candidates, self.min_samples_split = n_candidates, min_samples_split
        self.root = self.sampled(rows)

    def learn(self, row):
        self.root = self.with_row(self.root, row)

    def forget(self, row):
        self.root = self.without_row(self.root, row)

    def box_of(self, rows):
        """Return lower and upper end by feature."""
        return [
            (min(column), max(column))
            for column in zip(*(self.table[row] for row in rows), strict=True)
        ]

    def draw(self, parts):
        """Draw a feature and a threshold from parts of features, in proportion to their lengths."""
        position = self.random.random() * sum(high - low for _, low, high in parts)
        for feature, low, high in parts:
            if position < high - low:
                return feature, low + position
            position -= high - low
        return self.draw(parts)  # rounding has carried the position past the end

    def divided(self, rows, cut):
        feature, threshold = cut
        left = [row for row in rows if self.table[row][feature] <= threshold]
        return left, [row for row in rows if self.table[row][feature] > threshold]

    def gain(self, rows, cut):
        """Return how much the cut reduces the squared deviation, up to a constant."""
        return sum(
            sum(self.labels[row] for row in side) ** 2 / len(side)
            for side in self.divided(rows, cut)
        )

    def best_of(self, rows, candidates):
        gains = [self.gain(rows, cut) for cut in candidates]
        most = max(gains)
        return next(c for c, gain in enumerate(gains) if gain >= most - 1e-9)

    def sampled(self, rows):
        """Sample a subtree on some rows."""
        node = Node(rows, self.box_of(rows))
        parts = parts_of(node.box)
        if len(rows) >= self.min_samples_split and parts:
            node.duration = self.random.expovariate(extent(parts))
            node.candidates = [self.draw(parts) for _ in range(self.n_candidates)]
            node.best = self.best_of(rows, node.candidates)
            self.sample_children(node)
        return node

    def sample_children(self, node):
        sides = self.divided(node.rows, node.candidates[node.best])
        node.children = [self.sampled(side) for side in sides]

    def with_row(self, node, row):
        """Return what becomes of a node when a row joins it."""
        if not node.children:
            return self.sampled([*node.rows, row])
        old, used = node.box, node.candidates[node.best]
        node.rows = [*node.rows, row]
        node.box = self.box_of(node.rows)
        gaps = gaps_between(old, node.box)
        if gaps:
            node.candidates = self.redrawn(node, gaps)
            node.duration = self.shortened(node.duration, extent(gaps))
        return self.decided(node, used, row, self.with_row)

    def without_row(self, node, row):
        """Return what becomes of a node when a row leaves it."""
        rows = [other for other in node.rows if other != row]
        box = self.box_of(rows)
        if not node.children or len(rows) < self.min_samples_split or not parts_of(box):
            return self.sampled(rows)
        old, used = node.box, node.candidates[node.best]
        node.rows, node.box = rows, box
        if box != old:
            parts = parts_of(box)
            node.candidates = [
                cut if box[cut[0]][0] <= cut[1] < box[cut[0]][1] else self.draw(parts)
                for cut in node.candidates
            ]
            node.duration = self.lengthened(node.duration, extent(parts_of(old)), extent(parts))
        return self.decided(node, used, row, self.without_row)

    def redrawn(self, node, gaps):
        """Return the candidates, some of them drawn anew in the gaps by which the box has grown."""
        share = extent(gaps) / extent(parts_of(node.box))
        return [self.draw(gaps) if self.random.random() < share else cut for cut in node.candidates]

    def shortened(self, duration, excess):
        return min(duration, self.random.expovariate(excess))

    def lengthened(self, duration, before, after):
        stays = self.random.random() < after / before
        return duration if stays else duration + self.random.expovariate(after)

    def decided(self, node, used, row, change):
        """Cut a node at its best candidate; let the row come or go below if the cut is the same."""
        node.best = self.best_of(node.rows, node.candidates)
        cut = node.candidates[node.best]
        if cut == used:
            side = self.table[row][cut[0]] > cut[1]
            node.children[side] = change(node.children[side], row)
        else:
            self.sample_children(node)
        return node


def parts_of(box):
    """Return feature, lower and upper end of each side that has a length."""
    return [(feature, low, high) for feature, (low, high) in enumerate(box) if low < high]


def gaps_between(box, larger):
    """Return the parts of the features by which a box has grown."""
    gaps = []
    for feature, ((low, high), (lowest, highest)) in enumerate(zip(box, larger, strict=True)):
        gaps += [(feature, lowest, low)] if lowest < low else []
        gaps += [(feature, high, highest)] if high < highest else []
    return gaps


def extent(parts):
    return sum(high - low for _, low, high in parts)
