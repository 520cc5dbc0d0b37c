"""The servers that a client calls for a group: the home, once it knows its address."""

from __future__ import annotations

from collections.abc import Mapping

from lakelog.client.connecting.home_servers import HomeServers

KEY = ("orders", "billing", "w1")
OTHER = ("orders", "billing", "w2")


class Clock:
    """A clock that tests set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def _named(home: str, server: str) -> Mapping[str, str]:
    return {"lakelog-home": home, "lakelog-server": server}


def test_an_unknown_home_is_the_current_server() -> None:
    homes = HomeServers(3)
    assert [homes.choose(KEY, current) for current in range(3)] == [0, 1, 2]


def test_a_known_home_is_called_directly() -> None:
    homes = HomeServers(2)
    homes.learn(OTHER, 1, _named("b", "b"))
    homes.learn(KEY, 0, _named("b", "a"))
    assert (homes.choose(KEY, 0), homes.choose(KEY, 1)) == (1, 1)


def test_each_other_server_is_called_once_a_minute_to_learn_its_name() -> None:
    clock = Clock()
    homes = HomeServers(3, clock)
    homes.learn(KEY, 0, _named("elsewhere", "a"))
    assert homes.choose(KEY, 0) == 1
    homes.learn(KEY, 1, _named("elsewhere", "b"))
    assert homes.choose(KEY, 0) == 2
    homes.learn(KEY, 2, _named("elsewhere", "c"))
    assert homes.choose(KEY, 0) == 0, "the home is at none of these addresses"
    clock.now += 60
    assert homes.choose(KEY, 0) == 1


def test_a_home_that_fails_is_left() -> None:
    homes = HomeServers(2)
    homes.learn(KEY, 1, _named("b", "b"))
    homes.forget(KEY, 1)
    assert homes.choose(KEY, 0) == 0


def test_a_home_that_moves_is_followed() -> None:
    homes = HomeServers(2)
    homes.learn(KEY, 1, _named("b", "b"))
    homes.learn(OTHER, 0, _named("a", "a"))
    homes.learn(KEY, 1, _named("a", "b"))
    assert homes.choose(KEY, 1) == 0


def test_a_restarted_server_has_another_name() -> None:
    homes = HomeServers(2)
    homes.learn(KEY, 1, _named("b", "b"))
    homes.learn(OTHER, 1, _named("b2", "b2"))
    homes.learn(KEY, 0, _named("b2", "a"))
    assert homes.choose(KEY, 0) == 1
    assert "b" not in homes._indexes


def test_errors_and_older_servers_name_no_home() -> None:
    homes = HomeServers(2)
    homes.learn(KEY, 1, _named("b", "b"))
    homes.learn(KEY, 1, {"content-type": "application/problem+json"})
    assert homes.choose(KEY, 0) == 1


def test_the_only_server_needs_no_memory() -> None:
    homes = HomeServers(1)
    homes.learn(KEY, 0, _named("b", "a"))
    assert homes.choose(KEY, 0) == 0
    assert not homes._homes
