from latentmill.stages.training.best import Best


def test_the_lowest_loss_and_its_step_are_kept() -> None:
    best = Best().after(0.5, 10, 0.0).after(0.4, 20, 0.0).after(0.45, 30, 0.0)
    assert best == Best(0.4, 20, 1)


def test_a_gain_below_the_least_gain_counts_as_none() -> None:
    best = Best().after(1.0, 1, 0.1).after(0.95, 2, 0.1)
    assert best == Best(1.0, 1, 1)
    assert best.after(0.89, 3, 0.1) == Best(0.89, 3)


def test_patience_counts_measurements_in_a_row_and_zero_never_gives_up() -> None:
    best = Best().after(1.0, 1, 0.0)
    assert not best.is_exhausted(1)
    best = best.after(2.0, 2, 0.0).after(2.0, 3, 0.0)
    assert best.is_exhausted(2)
    assert not best.is_exhausted(3)
    assert not best.is_exhausted(0)


def test_a_loss_that_is_no_number_is_no_gain() -> None:
    assert Best().after(float("nan"), 1, 0.0) == Best(without_gain=1)
