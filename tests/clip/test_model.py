"""Ours against OpenAI's `clip` code and open_clip, on the same random weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from cocoamix import compat
from cocoamix.clip import load_clip, templates, tokenize
from cocoamix.clip.backbones import BACKBONES, Sizes, fetch_weights
from cocoamix.clip.openai import build_openai
from cocoamix.errors import UserError

TEXTS = ["a photo of a cat.", "a centered satellite photo of Herbaceous Vegetation Land.", "dog", "naïve café №5"]
SLOW = pytest.mark.slow
PRECISIONS = {"fp32": 1e-6, "fp16": 2e-3, "bf16": 2e-2, "amp": 2e-2}


def original(sizes: Sizes, seed: int = 3) -> torch.nn.Module:
    """OpenAI's own model in fp32, with weights that are far from symmetric."""
    torch.manual_seed(seed)
    model: torch.nn.Module = build_openai(sizes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.05)
        model.logit_scale.fill_(3.3)
    return model.float().eval()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.nn.Module, Path]:
    model = original(BACKBONES["tiny"].sizes)
    path = tmp_path_factory.mktemp("weights") / "tiny.pt"
    torch.save(model.state_dict(), path)
    return model, path


def features(model: torch.nn.Module, resolution: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    images = torch.randn(1, 3, resolution, resolution, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        image = F.normalize(model.encode_image(images), dim=-1)
        text = F.normalize(model.encode_text(tokenize(TEXTS)), dim=-1)
    return images, image, text


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("source", ["clip", "open_clip"])
def test_features_match_openai(tiny: tuple[torch.nn.Module, Path], source: str, precision: str) -> None:
    model, path = tiny
    images, image, text = features(model, 32)
    ours = load_clip("tiny", str(path), source, precision)
    assert (ours.source, ours.precision) == (source, precision)
    assert ours.encode_image(images).dtype == torch.float32
    torch.testing.assert_close(ours.encode_image(images), image, atol=PRECISIONS[precision], rtol=0)
    torch.testing.assert_close(ours.encode_texts(TEXTS), text, atol=PRECISIONS[precision], rtol=0)
    assert ours.logit_scale == pytest.approx(float(model.logit_scale.exp()))


SIZES = ["RN50", "RN101", "ViT-B/32", "ViT-B/16", "ViT-L/14"]


def assert_matches_openai(name: str, sizes: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a model of these sizes under this name has OpenAI's features, with sizes inferred from the weights."""
    for draw in ("normal_", "xavier_uniform_", "kaiming_uniform_"):
        monkeypatch.setattr(torch.nn.init, draw, tile)
    model = original(sizes)
    state = dict(model.state_dict())
    assert Sizes.of(state) == sizes
    monkeypatch.setattr("cocoamix.clip.model.read_weights", lambda path: state)  # avoids writing gigabytes
    ours = load_clip(name, "from memory")
    images, image, text = features(model, sizes.resolution)
    torch.testing.assert_close(ours.encode_image(images), image, atol=2e-6, rtol=0)
    torch.testing.assert_close(ours.encode_texts(TEXTS), text, atol=2e-6, rtol=0)
    assert (text[0] - text[1]).norm() > 0.1


def tile(tensor: torch.Tensor, *_: object, **options: object) -> torch.Tensor:
    """Fill a tensor with repeated noise, scaled for its number of inputs; much faster than drawing every value."""
    deviation = options.get("std") or (tensor[0].numel() * 3) ** -0.5
    noise = torch.randn(9973, generator=torch.Generator().manual_seed(tensor.numel())) * deviation
    with torch.no_grad():
        return tensor.copy_(noise.repeat(-(-tensor.numel() // len(noise)))[: tensor.numel()].view_as(tensor))


@pytest.mark.parametrize("name", SIZES)
def test_features_match_openai_at_true_widths(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The five sizes with one layer of each kind give OpenAI's features."""
    full = BACKBONES[name]
    layers = 1 if full.sizes.patch else (1, 1, 1, 1)
    sizes = replace(full.sizes, vision_layers=layers, text_layers=1)
    monkeypatch.setitem(BACKBONES, name, replace(full, sizes=sizes))
    assert_matches_openai(name, sizes, monkeypatch)


@pytest.mark.parametrize("name", [name if name == "ViT-B/32" else pytest.param(name, marks=SLOW) for name in SIZES])
def test_features_match_openai_at_true_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All layers of the five sizes give OpenAI's features."""
    assert_matches_openai(name, BACKBONES[name].sizes, monkeypatch)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_all_file_formats_give_the_same_model(tiny: tuple[torch.nn.Module, Path], tmp_path: Path) -> None:
    """A state dict, safetensors, an open_clip checkpoint and OpenAI's TorchScript archive give the same model."""
    model, path = tiny
    wanted = load_clip("tiny", str(path))
    state = {key: value.clone() for key, value in model.state_dict().items()}
    save_file(state, tmp_path / "weights.safetensors")
    torch.save({"epoch": 3, "state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "open_clip.pt")
    images, tokens = torch.randn(1, 3, 32, 32), tokenize(["cat"])
    archive = torch.jit.trace_module(model, {"forward": (images, tokens)}, check_trace=False)
    torch.jit.save(archive, str(tmp_path / "archive.pt"))
    for file in ("weights.safetensors", "open_clip.pt", "archive.pt"):
        ours = load_clip("tiny", str(tmp_path / file))
        assert ours.weights_hash == wanted.weights_hash, file
        torch.testing.assert_close(ours.encode_texts(TEXTS), wanted.encode_texts(TEXTS))


def test_hash_depends_on_the_values(tiny: tuple[torch.nn.Module, Path], tmp_path: Path) -> None:
    model, path = tiny
    state = {key: value.clone() for key, value in model.state_dict().items()}
    state["ln_final.bias"][0] += 1e-3
    torch.save(state, tmp_path / "other.pt")
    assert load_clip("tiny", str(path)).weights_hash == load_clip("tiny", str(path), "open_clip").weights_hash
    assert load_clip("tiny", str(path)).weights_hash != load_clip("tiny", str(tmp_path / "other.pt")).weights_hash


def test_gelu_needs_open_clip(tiny: tuple[torch.nn.Module, Path]) -> None:
    _, path = tiny
    quick, plain = (load_clip("tiny", str(path), "open_clip", activation=a) for a in ("quick_gelu", "gelu"))
    assert load_clip("tiny", str(path), activation="gelu").source == "open_clip"
    assert (quick.encode_texts(TEXTS) - plain.encode_texts(TEXTS)).abs().max() > 1e-3
    with pytest.raises(UserError, match="open_clip"):
        load_clip("tiny", str(path), "clip", activation="gelu")


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("source", ["clip", "open_clip"])
def test_layer_norms_stay_in_full_precision(
    tiny: tuple[torch.nn.Module, Path], monkeypatch: pytest.MonkeyPatch, source: str, precision: str
) -> None:
    """Matrices are in half precision, but the inputs and parameters of every norm in both towers are not."""
    ours = load_clip("tiny", str(tiny[1]), source, precision)
    assert ours.text.blocks[0].mlp.c_fc.weight.dtype != torch.float32
    seen: list[torch.dtype] = []
    layer_norm = F.layer_norm

    def watched(x: torch.Tensor, shape: object, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
        seen.extend([x.dtype, weight.dtype, bias.dtype])
        return layer_norm(x, shape, weight, bias, eps)

    monkeypatch.setattr(F, "layer_norm", watched)
    ours.encode_texts(TEXTS)
    texts = len(seen)
    ours.encode_image(torch.randn(1, 3, 32, 32))
    assert set(seen) == {torch.float32}
    assert len(seen) > texts > 0


def test_loading_uses_no_global_random_generator() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    load_clip("tiny", "random")
    assert torch.equal(torch.rand(1), wanted)


def test_model_stays_frozen(tiny_clip: object) -> None:
    model = load_clip("tiny", "random")
    model.train()
    assert not model.training
    assert not any(module.training for module in model.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a model", "cannot be read"),
        ({"a": torch.zeros(1)}, "not a CLIP model"),
        (None, "not a file"),
    ],
)
def test_unusable_files_are_refused(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "weights.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(UserError, match=message) as error:
        load_clip("tiny", str(path))
    assert "weights.pt" in str(error.value)


MISSHAPEN = [
    ("visual.conv1.weight", None, "it has no visual.conv1.weight"),
    ("visual.positional_embedding", None, "it has no visual.positional_embedding"),
    ("text_projection", torch.zeros(3), "a tensor has an unexpected shape"),
    ("transformer.resblocks.0.ln_2.bias", torch.zeros(3), "its transformer.resblocks.0.ln_2.bias is 3, but this model"),
    ("transformer.resblocks.0.ln_2.bias", torch.zeros(128).to_sparse(), "its tensors are not plain numbers"),
    ("transformer.resblocks.0.ln_2.bias", None, "missing transformer.resblocks.0.ln_2.bias, unexpected nothing"),
    ("x" * 400, torch.zeros(3), "unexpected xxx"),
]


@pytest.mark.parametrize(("key", "tensor", "message"), MISSHAPEN, ids=range(len(MISSHAPEN)))
def test_missing_and_misshapen_tensors_are_refused(
    tiny: tuple[torch.nn.Module, Path], tmp_path: Path, key: str, tensor: torch.Tensor | None, message: str
) -> None:
    state = dict(tiny[0].state_dict())
    if tensor is None:
        del state[key]
    else:
        state[key] = tensor
    torch.save(state, tmp_path / "weights.pt")
    with pytest.raises(UserError, match=message) as error:
        load_clip("tiny", str(tmp_path / "weights.pt"))
    assert len(str(error.value)) < 500


def test_truncated_file_is_refused(tiny: tuple[torch.nn.Module, Path], tmp_path: Path) -> None:
    whole = tiny[1].read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="cannot be read"):
        load_clip("tiny", str(tmp_path / "cut.pt"))


def test_weights_of_another_backbone_are_refused(tiny: tuple[torch.nn.Module, Path]) -> None:
    with pytest.raises(UserError, match=r"is not a model of MODEL.BACKBONE.NAME ViT-B/16.*text_width 128"):
        load_clip("ViT-B/16", str(tiny[1]))


def test_unknown_backbone_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean ViT-B/16"):
        load_clip("vit-b16")


def test_missing_download_names_its_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("no route")

    monkeypatch.setenv("COCOAMIX_CLIP_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    with pytest.raises(UserError) as error:
        fetch_weights("ViT-B/16")
    for part in (str(tmp_path / "ViT-B-16.pt"), "no route", "5806e77cd80f", "MODEL.BACKBONE.WEIGHTS", "`tiny`"):
        assert part in str(error.value)


def test_altered_download_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COCOAMIX_CLIP_CACHE", str(tmp_path))
    (tmp_path / "ViT-B-16.pt").write_bytes(b"half of it")
    with pytest.raises(UserError, match="SHA-256 differs"):
        fetch_weights("ViT-B/16")
    assert list(tmp_path.iterdir()) == [tmp_path / "ViT-B-16.pt"]


def test_backbones_match_openai() -> None:
    """File names and hashes against the table in OpenAI's package."""
    compat.import_openai_clip()
    from clip.clip import _MODELS

    for name, backbone in BACKBONES.items():
        if backbone.sha256:
            assert backbone.url == _MODELS[name]


def test_templates_match_prior_work() -> None:
    compat.import_open_clip()
    from open_clip.zero_shot_metadata import OPENAI_IMAGENET_TEMPLATES

    assert [template("{}") for template in OPENAI_IMAGENET_TEMPLATES] == list(templates.IMAGENET_80)
    assert set(templates.IMAGENET_7) < set(templates.IMAGENET_80)
    before = list(templates.IMAGENET_7)
    assert templates.ensemble_templates("EuroSAT") == [*before, "a centered satellite photo of {}."]
    assert templates.ensemble_templates("ImageNet") == before == list(templates.IMAGENET_7)
    assert templates.dataset_template("Caltech101") == "a photo of a {}."


def test_pkg_resources_is_replaced_only_during_the_import() -> None:
    """The stub exists only while `clip` is imported."""
    import sys

    compat.import_openai_clip()
    stand_in = sys.modules.get("pkg_resources")
    assert stand_in is None or getattr(stand_in, "__file__", None)
