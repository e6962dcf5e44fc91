"""The sample Policies of OpenShift 3.11's documentation, and a cluster with the topologies that they name.

The Policies are written as they are printed there: JSON within YAML, `version` instead of `apiVersion`, `...` for the
rules that are left out, and custom names for predicates and priorities.
"""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from trimtab.scheduling.imports import read_scheduler, repair_policy_text

FILES = Path(__file__).parent / "samples"
DEFAULT = (FILES / "openshift-3.11-default-scheduler.json").read_text(encoding="utf-8")
MODIFIED = (FILES / "openshift-3.11-modified-scheduler.txt").read_text(encoding="utf-8")
REGION_ZONE_RACK = """kind: "Policy"
version: "v1"
predicates:
...
  - name: "RegionZoneAffinity" 1
    argument:
      serviceAffinity: 2
        labels: 3
          - "region"
          - "zone"
priorities:
...
  - name: "RackSpread" 4
    weight: 1
    argument:
      serviceAntiAffinity: 5
        label: "rack" 6
"""
CITY_BUILDING_ROOM = """kind: "Policy"
version: "v1"
predicates:
...
  - name: "CityAffinity"
    argument:
      serviceAffinity:
        labels:
          - "city"
priorities:
...
  - name: "BuildingSpread"
    weight: 1
    argument:
      serviceAntiAffinity:
        label: "building"
  - name: "RoomSpread"
    weight: 1
    argument:
      serviceAntiAffinity:
        label: "room"
"""
REQUIRE_REGION = """kind: "Policy"
version: "v1"
predicates:
...
  - name: "RequireRegion"
    argument:
      labelsPresence:
        labels:
          - "region"
        presence: true
priorities:
...
  - name: "ZonePreferred"
    weight: 1
    argument:
      labelPreference:
        label: "zone"
        presence: true
"""
COMBINED = """kind: "Policy"
version: "v1"
predicates:
...
  - name: "RegionAffinity"
    argument:
      serviceAffinity:
        labels:
          - "region"
  - name: "RequireRegion"
    argument:
      labelsPresence:
        labels:
          - "region"
        presence: true
  - name: "BuildingNodesAvoid"
    argument:
      labelsPresence:
        labels:
          - "building"
        presence: false
  - name: "PodFitsPorts"
  - name: "MatchNodeSelector"
priorities:
...
  - name: "ZoneSpread"
    weight: 2
    argument:
      serviceAntiAffinity:
        label: "zone"
  - name: "ZonePreferred"
    weight: 1
    argument:
      labelPreference:
        label: "zone"
        presence: true
  - name: "ServiceSpreadingPriority"
    weight: 1
"""
_SERVICE_AFFINITY = """"predicates":[
      {
         "name":"Racks", 1
         "argument":{
            "serviceAffinity":{
               "labels":[
                  "rack" 2
               ]
            }
         }
      }
   ],
"""
_LABELS_PRESENCE = """"predicates":[
      {
         "name":"Racks", 1
         "argument":{
            "labelsPresence":{
               "labels":[
                  "rack" 2
                ],
                "presence": true 3
            }
         }
      }
   ],
"""
_SERVICE_ANTI_AFFINITY = """"priorities":[
    {
        "name":"Racks", 1
        "weight" : 1 2
        "argument":{
            "serviceAntiAffinity":{
                "label":[
                    "rack" 3
                ]
            }
        }
    }
]
"""
_LABEL_PREFERENCE = """"priorities":[
    {
        "name":"Racks", 1
        "weight" : 1, 2
        "argument":{
            "labelPreference":{
                "label": "rack", 3
                "presence": true 4
            }
        }
    }
]
"""
FRAGMENTS = {
    "service-affinity": (_SERVICE_AFFINITY, {"serviceAffinity": {"labels": ["rack"]}}),
    "labels-presence": (_LABELS_PRESENCE, {"labelsPresence": {"labels": ["rack"], "presence": True}}),
    "service-anti-affinity": (_SERVICE_ANTI_AFFINITY, {"serviceAntiAffinity": {"label": "rack"}}),
    "label-preference": (_LABEL_PREFERENCE, {"labelPreference": {"label": "rack", "presence": True}}),
}
"""The fragments of the sections Configurable Predicates and Configurable Priorities, and the arguments in them.

A name and a label replace the placeholders.
"""

SAMPLES = {
    "default": DEFAULT,
    "modified": MODIFIED,
    "region-zone-rack": REGION_ZONE_RACK,
    "city-building-room": CITY_BUILDING_ROOM,
    "require-region": REQUIRE_REGION,
    "combined": COMBINED,
}


def topology() -> dict[str, dict[str, str]]:
    """The labels of each node: regions with zones and racks, cities with buildings and rooms, and incomplete nodes."""
    found: dict[str, dict[str, str]] = {}
    for region in ("north", "south"):
        for zone in ("a", "b"):
            for rack in ("1", "2"):
                name = f"{region}-{zone}-{rack}"
                found[name] = {"region": region, "zone": f"{region}-{zone}", "rack": name}
        found[f"{region}-no-zone"] = {"region": region}
    for city in ("oslo", "rome"):
        for building in ("x", "y"):
            for room in ("1", "2"):
                name = f"{city}-{building}-{room}"
                found[name] = {"city": city, "building": f"{city}-{building}", "room": name}
    found["north-building"] = {"region": "north", "zone": "north-a", "building": "z"}
    return found


def converted(sample: str) -> dict[str, Any]:
    text, _ = repair_policy_text(SAMPLES[sample])
    found = read_scheduler(yaml.safe_load(text))
    assert found is not None
    document = copy.deepcopy(found.documents[0])
    document["metadata"]["name"] = document["spec"]["schedulerName"] = sample
    return document


def even(counts: Counter[str], number: int) -> bool:
    """Whether the pods are spread over that many values as evenly as possible."""
    return len(counts) == number and max(counts.values()) - min(counts.values()) <= 1
