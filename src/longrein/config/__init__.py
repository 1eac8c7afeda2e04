"""The user's files and environment: settings in layers, trust, instructions, model choice, secrets."""

from longrein.config.environment import (
    config_dir,
    describe_environment,
    environment,
    home_folder,
    project_file,
    state_dir,
    user_file,
)
from longrein.config.instructions import (
    Instructions,
    load_instructions,
    nested_instructions,
    project_root,
)
from longrein.config.model_choice import Probe, choose_model, subagent_model
from longrein.config.settings import known_secrets, load_settings
from longrein.config.settings_file import remember_rule
from longrein.config.subagent_types import load_subagent_types
from longrein.config.trust import distrust, is_trusted, trust

__all__ = [
    "Instructions",
    "Probe",
    "choose_model",
    "config_dir",
    "describe_environment",
    "distrust",
    "environment",
    "home_folder",
    "is_trusted",
    "known_secrets",
    "load_instructions",
    "load_settings",
    "load_subagent_types",
    "nested_instructions",
    "project_file",
    "project_root",
    "remember_rule",
    "state_dir",
    "subagent_model",
    "trust",
    "user_file",
]
