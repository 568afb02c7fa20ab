#!/usr/bin/python3
"""Play a scenario: each of its stories with vendors, an agent and folders of its own.

  scenarios.py [--story NAME] SCENARIO [ARG...]
"""

import argparse
import sys
import time
from typing import NamedTuple, Optional

import aware
import capped
import ends
import isolated
import killed_verbs
import pins
import recovered
import restored
import together
import waiting
import watched
from lab import EMULATED, SKIPPED, Lab, find_reseat


class Scenario(NamedTuple):
    stories: tuple  # functions of a lab and of the command's arguments
    vendors: tuple = (EMULATED,)
    devices: Optional[str] = None  # emulated ones that are not lab.GPUS


SCENARIOS = {
    "aware": Scenario((aware.chooses_for_each_device,), devices=aware.DEVICES),
    "aware-page": Scenario((aware.page_is_enough,), devices=aware.DEVICES),
    "capped": Scenario((capped.refused_below_the_least, capped.programs_take_turns,
                        capped.an_agent_starts_with_a_cap, capped.a_cap_is_set_while_it_runs,
                        capped.a_lost_device_leaves_the_cap, capped.a_silent_meter_leaves_the_cap)),
    "early": Scenario((ends.starts_where_it_was,)),
    "ending": Scenario((ends.ends_in_moves,), ("pocl",)),
    "killed-verbs": Scenario((killed_verbs.checkpoints, killed_verbs.servers, killed_verbs.restores,
                              killed_verbs.recoveries)),
    "late": Scenario((ends.calls_no_driver_late,)),
    "listed": Scenario((isolated.is_listed,), ("pocl",)),
    "not-offered": Scenario((pins.not_offered,), ("pocl",)),
    "not-offered-isolated": Scenario((pins.not_offered_isolated,), ("pocl",)),
    "parked": Scenario((isolated.has_no_driver_while_parked,), ("pocl",)),
    "pinned": Scenario((pins.pinned,), ("pocl",)),
    "recovered": Scenario((recovered.cannot, recovered.is_fenced, recovered.loses_a_host)),
    "restored": Scenario((restored.refuses, restored.lives_again)),
    "together": Scenario((together.moves_one_by_one_and_all,), devices=together.DEVICES),
    "waiting": Scenario((waiting.one_waits_for_the_other, waiting.each_has_what_the_other_wants,
                         waiting.one_may_have_less_than_it_needs_at_once, waiting.one_has_waited_long_enough,
                         waiting.nobody_waits_for_an_agent_that_is_stopped), devices=waiting.DEVICES),
    "watched": Scenario((watched.refuses, watched.survivor_is_one, watched.living_host_keeps_its_dead,
                         watched.without_heartbeats, watched.folder_is_gone, watched.fails_again_and_again,
                         watched.important_first)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--story", help="this one alone")
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("argument", nargs="*")
    options = parser.parse_args()
    scenario, reseat = SCENARIOS[options.scenario], find_reseat()
    if not reseat:
        return SKIPPED
    for story in scenario.stories:
        if options.story in (None, story.__name__):
            begin = time.monotonic()
            with Lab(scenario.vendors, reseat, program=options.argument, devices=scenario.devices) as lab:
                story(lab, *options.argument)
            print(f"{story.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
