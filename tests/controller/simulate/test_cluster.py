"""Seats of racks and trays: who trains where, what is free, what is out for repair."""

from controller.core.declared.spec import Fleet
from controller.simulate.agenda import Agenda
from controller.simulate.rehearsal.cluster import make_cluster

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def a_cluster(*, racks=3, spare_racks=1, trays=4, spare_trays=1):
    """Two racks of three trays train, two ranks on each."""
    fleet = Fleet.model_validate(
        {
            "kind": "kubernetes",
            "racks": racks,
            "spareRacks": spare_racks,
            "traysPerRack": trays,
            "spareTraysPerRack": spare_trays,
            "processesPerTray": 2,
        }
    )
    cluster = make_cluster(fleet, Agenda())
    assert cluster.place()
    return cluster


def seats(cluster):
    return [[(it.rack, it.number) for it in rack] for rack in cluster.seated]


def take_out(cluster, rack, *numbers, hours=5):
    cluster.take_out([cluster.trays[rack][number] for number in numbers], hours * HOUR_MS)


def test_ranks_lie_in_order_of_racks_and_trays():
    cluster = a_cluster()
    places = [(it.rack, it.number) for it in map(cluster.tray_of, range(12))]
    assert places == [(rack, tray) for rack in (0, 1) for tray in (0, 1, 2) for _ in (0, 1)]
    assert cluster.ranks_of(cluster.trays[1][1]) == [8, 9]
    assert cluster.ranks_of(cluster.trays[1][3]) == []


def test_lost_tray_is_replaced_in_its_rack_and_the_others_stay():
    cluster = a_cluster()
    take_out(cluster, 0, 1)
    assert cluster.place()
    assert seats(cluster) == [[(0, 0), (0, 3), (0, 2)], [(1, 0), (1, 1), (1, 2)]]
    assert (cluster.tray_moves, cluster.rack_moves) == (1, 0)


def test_rack_with_too_few_trays_gives_its_ranks_to_the_spare_rack():
    cluster = a_cluster()
    take_out(cluster, 1, 0, 1)
    assert cluster.place()
    assert seats(cluster) == [[(0, 0), (0, 1), (0, 2)], [(2, 0), (2, 1), (2, 2)]]
    assert (cluster.tray_moves, cluster.rack_moves) == (0, 1)


def test_whoever_was_repaired_is_free_again_and_nobody_moves_back():
    cluster = a_cluster()
    take_out(cluster, 0, 1)
    cluster.place()
    cluster.agenda.run_until(5 * HOUR_MS)
    assert cluster.place()
    assert seats(cluster)[0] == [(0, 0), (0, 3), (0, 2)]
    assert cluster.tray_moves == 1
    assert cluster.count_whole(0) == 4


def test_gang_that_does_not_fit_is_not_placed_until_a_repair_ends():
    cluster = a_cluster(racks=2, spare_racks=0)
    before = seats(cluster)
    take_out(cluster, 0, 0, 1)
    assert not cluster.place()
    assert seats(cluster) == before
    cluster.agenda.run_until(5 * HOUR_MS)
    assert cluster.place()


def test_second_failure_of_a_tray_leaves_the_longer_repair():
    cluster = a_cluster()
    take_out(cluster, 0, 0, hours=5)
    take_out(cluster, 0, 0, hours=2)
    cluster.agenda.run_until(4 * HOUR_MS)
    assert not cluster.is_whole(cluster.trays[0][0])


def test_slow_tray_is_left_at_the_next_launch_if_another_is_free():
    cluster = a_cluster()
    cluster.slow_down(cluster.trays[0][2], 30, HOUR_MS)
    cluster.slow_down(cluster.trays[1][0], 10, HOUR_MS)
    assert cluster.slow_percent == 30
    take_out(cluster, 1, 1)
    assert cluster.place()
    assert seats(cluster) == [[(0, 0), (0, 1), (0, 3)], [(1, 0), (1, 3), (1, 2)]]
    assert cluster.slow_percent == 10
    cluster.agenda.run_until(HOUR_MS)
    assert cluster.slow_percent == 0


def test_stock_remembers_the_fewest_and_the_days_without_a_spare():
    cluster = a_cluster()
    cluster.agenda.run_until(DAY_MS)
    take_out(cluster, 0, 0, hours=30)
    assert cluster.fewest_by_rack == [0, 1, 4]
    assert cluster.fewest == 5
    cluster.agenda.run_until(DAY_MS + 30 * HOUR_MS)
    cluster.take_stock()
    assert cluster.bare_days == {1, 2}
    cluster.agenda.run_until(5 * DAY_MS)
    cluster.take_stock()
    assert cluster.bare_days == {1, 2}
    assert cluster.fewest == 5


def test_local_fleet_is_one_rack_without_spares():
    cluster = make_cluster(Fleet.model_validate({"processes": 2}), Agenda())
    assert cluster.place()
    assert [(it.rack, it.number) for it in map(cluster.tray_of, (0, 1))] == [(0, 0), (0, 1)]
    assert cluster.fewest == 0
