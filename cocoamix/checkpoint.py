"""Saves, resumes and loads the runs of trainers: which checkpoints fit a run, and what it takes from them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yacs.config import CfgNode

from cocoamix.config.roles import if_empty, taken_from_checkpoint
from cocoamix.errors import UserError
from cocoamix.fscil.files import read_session, session_file
from cocoamix.io import checkpoints
from cocoamix.io.plain import to_plain
from cocoamix.io.screen import detail
from cocoamix.model import PromptModel
from cocoamix.run import data_record, origin, protocol, threads
from cocoamix.run.checkpointer import RESUME, checkpoint_path, damaged, epochs_in, read_state
from cocoamix.run.recording import Loaded, categories
from cocoamix.seeding import set_random_seed

if TYPE_CHECKING:
    from cocoamix.trainer import CLIPTrainer

# ---------------------------------------------------------------------------------------- resuming


def choose_seed(cfg: CfgNode) -> int:
    """Return the configured seed. Without one, reuse the seed of the run to resume, or draw a new seed."""
    if cfg.SEED >= 0:
        return int(cfg.SEED)
    known = (_seed_of(folder) for folder in (cfg.OUTPUT_DIR, cfg.RESUME) if folder)
    seed = next((seed for seed in known if seed is not None), None)
    if seed is None:
        seed = random.SystemRandom().randrange(2**31)
    print(f"No seed was given; this run uses {seed}")
    set_random_seed(seed)  # before the few-shot draw
    return seed


def _seed_of(folder: str) -> int | None:
    """Return the seed that an unfinished run in a folder, or its first session, drew, if there is one."""
    first, path = session_file(folder, 0), Path(folder, RESUME)
    if first.is_file():
        return int(read_session(first, 0).origin["seed"])
    seed = checkpoints.load(path).get("seed") if epochs_in(path) else None
    return seed if isinstance(seed, int) else None


def training_settings(trainer: CLIPTrainer) -> dict[str, Any]:
    """Return the settings that must match to resume a run."""
    return {**protocol.training_settings(trainer.cfg, trainer.Model.section), **trainer.model.identity()}


def describe_origin(trainer: CLIPTrainer) -> dict[str, Any]:
    """Return what a checkpoint records about its training run."""
    own = categories(trainer)
    return {
        "trainer": type(trainer).__name__,
        "backbone": trainer.clip.name,
        "weights_sha256": trainer.clip.weights_hash,
        "classnames": trainer.classnames,
        "activation": trainer.clip.activation,
        "seed": trainer.seed,
        "settings": training_settings(trainer),
        "protocol": trainer.protocol,
        "finished": trainer.trained_epochs >= trainer.max_epoch,
        "weights_file": trainer.cfg.MODEL.BACKBONE.WEIGHTS,
        "train_images": trainer.evaluated(trainer.cfg.TEST.SPLIT).training_images,
        **_facts_to_resume(trainer),
        **({"categories": own} if own else {}),
        **trainer.model.facts(),
    }


def _facts_to_resume(trainer: CLIPTrainer) -> dict[str, Any]:
    data = {"data": to_plain(trainer.data)} if trainer.data is not None else {}
    return {**data, threads.KEY: list(trainer.threads_used)}


def resume_state(trainer: CLIPTrainer, epochs: int) -> dict[str, Any]:
    """Return everything that a resume needs."""
    scaler = trainer.optimisation.scaler
    return {
        "epoch": epochs,
        **trainer.checkpointer.state(),
        "scaler": scaler.state_dict() if scaler is not None else None,
        # Every epoch seeds all generators from this number, so no generator state is needed.
        "seed": trainer.seed,
        "best_result": float(trainer.best_result),
        "settings": training_settings(trainer),
        "protocol": trainer.protocol,
        "unreadable": dict(trainer.images.unreadable),
        "course": trainer.course.state(),
        **({} if trainer.session is None else {"session": trainer.session}),
        **_facts_to_resume(trainer),
        **trainer.model.state(),
    }


def save_resume(trainer: CLIPTrainer, epochs: int) -> None:
    """Write the resume file of a run."""
    checkpoints.save(Path(trainer.output_dir, RESUME), resume_state(trainer, epochs))


def resume(trainer: CLIPTrainer, directory: str) -> int:
    """Resume from the output folder if it holds a run, otherwise from the folder that --resume names.

    In this order, because a run that --resume started from another folder has its own, later state from then on.

    Returns:
        The number of epochs already done.
    """
    own = Path(trainer.output_dir)
    folders = dict.fromkeys((own, Path(directory)))
    for folder in folders:
        if epochs_in(folder / RESUME) == 0:
            continue  # no epoch is done yet, so the run may start with any settings
        done = _resume_from(trainer, folder)
        if done is None:
            continue
        trainer.trained_epochs, trainer.resumed_from = done, folder
        print(f"Resuming from {folder}: {done} of {trainer.max_epoch} epochs are done")
        if folder != own:
            trainer.checkpointer.copy_best(folder, own)
            if done >= trainer.max_epoch:
                trainer.save_model(done - 1, trainer.output_dir)
        elif len(folders) > 1:
            print(f"--resume {directory} is not used: the output folder holds a later state of this run")
        return done
    if trainer.cfg.RESUME:
        raise UserError(f"--resume names {directory}, which holds neither {RESUME} nor checkpoints to resume from.")
    detail("No checkpoint found, train from scratch")
    return 0


def _resume_from(trainer: CLIPTrainer, folder: Path) -> int | None:
    if (folder / RESUME).is_file():
        return resume_file(trainer, folder / RESUME)
    return _resume_checkpoints(trainer, folder) if trainer.checkpointer.can_resume(folder) else None


def resume_file(trainer: CLIPTrainer, path: Path) -> int:
    """Resume from a resume file; return the number of epochs already done."""
    state = read_state(path)
    check_settings(trainer, path, state["settings"], state["protocol"])
    check_origin(trainer, state, path)
    done = int(state["epoch"])
    try:
        trainer.course.restore(state["course"], done)
        trainer.max_epoch = trainer.course.total
        trainer.set_seed(state["seed"])
        if done > trainer.course.start and trainer.course.phase is not trainer.course.phases[0]:
            trainer.begin_phase()  # some parts exist only in this phase; the first has begun with the training
        trainer.checkpointer.restore(state, path)
        if trainer.optimisation.scaler is not None and state["scaler"]:
            trainer.optimisation.scaler.load_state_dict(state["scaler"])
        trainer.best_result = state["best_result"]
        trainer.images.unreadable.update(state["unreadable"])
        trainer.model.restore(state)
    # Whichever part cannot be restored, the cause is an altered file.
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise damaged(path, f"a part of it does not fit ({type(error).__name__})") from error
    return done


def check_settings(trainer: CLIPTrainer, path: Path, then: Mapping[str, Any], protocol_then: Mapping[str, Any]) -> None:
    """Raise a UserError if the settings or the protocol of a run to resume differ from this run's."""
    origin.check_settings(path, then, training_settings(trainer), protocol_then, trainer.protocol)


def check_origin(trainer: CLIPTrainer, content: Mapping[str, Any], path: Path) -> None:
    """Refuse to resume a run on other images, and continue its record of threads.

    Args:
        trainer: The trainer.
        content: A resume file, or the origin of a checkpoint.
        path: The file.
    """
    then = data_record.parse(content.get("data"), path)
    # With `skip`, images may be repaired or lost while a run is stopped, and the results count those left out.
    if trainer.data is not None and trainer.images.unreadable.policy == "stop":
        data_record.check_same(then, trainer.data, str(path.parent))
    trainer.threads_used = threads.continued(threads.recorded(content, path), trainer.threads_used)


def _resume_checkpoints(trainer: CLIPTrainer, directory: Path) -> int:
    """Resume from checkpoints in CoOp's layout without a resume file, such as Dassl's; replay the schedules."""
    done, newest_of = trainer.checkpointer.newest_files(directory)
    known: dict[str, Any] = {}
    for name, (path, content) in newest_of.items():
        known = load_part(trainer.model, name, content, path)
        if known:
            check_settings(trainer, path, known.get("settings", {}), known.get("protocol", {}))
            check_origin(trainer, known, path)
            trainer.set_seed(int(known.get("seed", trainer.seed)))
        trainer.checkpointer.step_schedule(name, trainer.course.epochs_of(name, done))
        if content.get("optimizer") and name in trainer.optimisation.optimizers:
            trainer.optimisation.optimizers[name].load_state_dict(content["optimizer"])
    trainer.model.adopt(known)
    if known.get("finished") and done:
        trainer.course.finish(done)
    elif any(phase.images is not None for phase in trainer.course.phases):
        raise UserError(
            f"The checkpoints of {done} epochs in {directory} have no {RESUME} next to them, and only that file holds "
            "the prompts of the folds. Restore it, or choose another --output-dir."
        )
    else:
        trainer.course.advance_to(done)
    trainer.max_epoch = trainer.course.total
    best = trainer.checkpointer.best_result(directory)
    trainer.best_result = trainer.best_result if best is None else best
    return done


# ---------------------------------------------------------------------------------------- loading


def load(trainer: CLIPTrainer, directory: str, epoch: int | None = None) -> None:
    """Load a trained model for evaluation; see `CLIPTrainer.load_model`."""
    names = trainer.saved_parts
    if names and not directory:
        raise UserError(
            f"--eval-only with {type(trainer).__name__} needs --model-dir, the output folder of a training run."
        )
    files = {}
    for name in names:
        path = checkpoint_path(Path(directory, name), epoch)
        content = checkpoints.load(path)
        known = origin.origin_of(content, path)
        origin.check_trainer(known, type(trainer).__name__, path)
        origin.check_partition(known, trainer.cfg.DATASET, path)
        files[name] = path, content, known
    if not files:
        return
    trainer.loaded = Loaded(folder=directory)
    path, content, known = next(iter(files.values()))
    _use_training_of(trainer, known)
    for name, (path, content, _) in files.items():
        load_part(trainer.model, name, content, path)
        trainer.trained_epochs = checkpoints.epochs_of(content)
        print(f'Loading weights to {name} from "{path}" (epoch = {trainer.trained_epochs})')
    if not known:
        if not trainer.is_training:
            print(
                f"Note: {path} does not record how it was trained: the results state the training settings of this "
                "configuration."
            )
        return
    trainer.model.adopt(known)
    then = known.get("settings") or {}
    if then and any(then.get(key) != value for key, value in trainer.model.identity().items()):
        print(f"Note: the model builds on other prompts than in its training, which {path} records")
    is_best = all(file.name == checkpoints.BEST for file, _, _ in files.values())
    trainer.loaded = _follow_training(trainer, known, directory, is_best)


def settings_of_training(
    model: type[PromptModel], settings: CfgNode, known: Mapping[str, Any]
) -> tuple[CfgNode, list[str]]:
    """Return the settings of an evaluation with those that it takes from training, and sentences on what differs.

    Args:
        model: The class of the model.
        settings: Its settings in the configuration of the evaluation.
        known: The origin of the checkpoint.
    """
    settings, notes = settings.clone(), []
    settings.defrost()
    then = known.get("settings") or {}
    for key in taken_from_checkpoint(model.section, model.trains_with_template, settings):
        trained_with = then.get(f"TRAINER.{model.section}.{key}", settings[key])
        if trained_with != settings[key]:
            notes.append(f"{key} is {trained_with!r} as in training; the configuration's {settings[key]!r} is not used")
            settings[key] = trained_with
    return settings, notes


def _use_training_of(trainer: CLIPTrainer, known: Mapping[str, Any]) -> None:
    """Use a model for the classes and the settings of a checkpoint that an evaluation depends on."""
    settings, notes = settings_of_training(trainer.Model, trainer.model.settings, known)
    for note in notes:
        print(note)
    task = replace(trainer.make_task(), images=(), labels=())
    task = replace(task, classnames=tuple(known.get("classnames") or task.classnames))
    trainer.use_model(trainer.make_model(task, settings))
    protocol.copy_staged_rates(trainer.protocol, known.get("protocol") or {})


def _follow_training(trainer: CLIPTrainer, known: Mapping[str, Any], folder: str, is_best: bool) -> Loaded:
    """Return the training settings of a loaded checkpoint, which the results state instead of those of this run.

    Args:
        trainer: The trainer.
        known: The origin of the checkpoint.
        folder: The folder of its run.
        is_best: Whether the checkpoint was selected on validation.
    """
    settings, section = dict(known.get("settings") or {}), trainer.Model.section
    if not is_best:
        settings["TEST.FINAL_MODEL"] = "last_step"
    # The template of the uniform ensemble takes no part in training.
    uses_own = trainer.model.templates and not trainer.model.trains_with_template
    own = {f"TRAINER.{section}.TEMPLATE"} if uses_own else set()
    own |= {f"TRAINER.{section}.{key}" for key in if_empty(section) if trainer.model.settings_of(trainer.cfg)[key]}
    cfg, overridden = origin.follow_training(trainer.cfg, settings, section, own)
    if overridden:
        then = protocol.settings_of(cfg)
        shown = ", ".join(f"{key} {then[key]} (not {now})" for key, now in overridden.items())
        print(f"The results state the checkpoint's training settings, not this configuration's: {shown}")
    trainer.set_seed(known.get("seed", trainer.seed))
    facts = origin.training_facts(known.get("protocol") or {}, trainer.protocol)
    return Loaded(known, folder, cfg, overridden, {**facts, "model_selection": cfg.TEST.FINAL_MODEL})


def load_initial_weights(trainer: CLIPTrainer, file: str) -> None:
    """Start the first part of a model from the checkpoint that MODEL.INIT_WEIGHTS names."""
    name, path = trainer.saved_parts[0], Path(file)
    known = load_part(trainer.model, name, checkpoints.load(path), path)
    origin.check_partition(known, trainer.cfg.DATASET, path)
    print(f'Starting {name} from "{path}"')


def load_part(model: PromptModel, name: str, content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Load a checkpoint into a part of a model; return the origin of the checkpoint, empty if it has none."""
    part, clip = model.parts[name], model.clip
    now = {"backbone": clip.name, "weights_sha256": clip.weights_hash, "activation": clip.activation}
    state, known = checkpoints.weights_of(content, path), origin.origin_of(content, path)
    origin.refuse_untrained(known, path)
    origin.check_weights(known, now, state, part, model.classnames, path)
    model.resize(name, state)
    for note in checkpoints.load_into(part, state, str(path), model.unused_keys(state)):
        print(f"Note: {note}")
    return known
