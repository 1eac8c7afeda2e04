"""What the user's files and environment say: settings in layers, trust, instructions, which model, which secrets."""

from longrein.config.agent_models import subagent_model
from longrein.config.agents import load_kinds
from longrein.config.choosing import Probe, choose_model
from longrein.config.environment import describe_environment
from longrein.config.instructions import (
    Instructions,
    load_instructions,
    nested_instructions,
    project_root,
)
from longrein.config.places import config_dir, environment, home_folder, project_file, state_dir, user_file
from longrein.config.remember import remember_rule
from longrein.config.secrets import known_secrets
from longrein.config.settings import Figures, Provider, Settings, load_settings
from longrein.config.trust import distrust, is_trusted, trust

__all__ = [
    "Figures",
    "Instructions",
    "Probe",
    "Provider",
    "Settings",
    "choose_model",
    "config_dir",
    "describe_environment",
    "distrust",
    "environment",
    "home_folder",
    "is_trusted",
    "known_secrets",
    "load_instructions",
    "load_kinds",
    "load_settings",
    "nested_instructions",
    "project_file",
    "project_root",
    "remember_rule",
    "state_dir",
    "subagent_model",
    "trust",
    "user_file",
]
