"""How wide predictive distributions are, learned from labels that were predicted first.

An equal mixture over trees is too wide where the trees err independently, and it seldom has the
right shape. A ``Spread`` corrects both and keeps the mean:

- A *factor* multiplies the standard deviation. It depends on the standard deviation that the trees
  predict: trees may agree because the labels are clear, or by chance, and only labels can tell.
- A *balance* multiplies the distances between components, relative to their scales, and keeps the
  standard deviation. More than 1 gives lighter tails and clearer modes. Less than 1 suits places
  where the mean of the trees is far better than each tree.

- The *surroundings* say how strange a row is. Far from the data the standard deviation is that of
  all labels, whatever the factors on the data are.

``apply`` changes mixtures. ``record`` keeps what each held-out row says about factors and balances.
``learn`` chooses factors and balance from the record.
"""
