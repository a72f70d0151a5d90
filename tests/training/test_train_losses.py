"""Losses by hand, and mixed batches."""

import pytest
import torch
import torch.nn.functional as F

from hwbench.data import Normalisation
from hwbench.errors import InvalidValue
from hwbench.training import Recipe
from hwbench.training.losses import check_targets, classification_loss, distillation_loss
from hwbench.training.mixing import Mixing
from hwbench.training.teacher import Renormalised

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 0.3, -2.0]])
INDICES = torch.tensor([2, 0])
PLAIN = Recipe(label_smoothing=0.0)


def test_soft_targets_of_one_class_are_class_indices() -> None:
    for smoothing in (0.0, 0.1):
        recipe = Recipe(label_smoothing=smoothing)
        one_hot = F.one_hot(INDICES, 3).float()
        expected = classification_loss(LOGITS, INDICES, recipe)
        torch.testing.assert_close(classification_loss(LOGITS, one_hot, recipe), expected)


def test_bce_is_a_mean_over_videos_and_classes() -> None:
    targets = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    p = LOGITS.sigmoid()
    expected = -(targets * p.log() + (1 - targets) * (1 - p).log()).mean()
    recipe = Recipe(loss="bce", label_smoothing=0.0)
    torch.testing.assert_close(classification_loss(LOGITS, targets, recipe), expected)
    torch.testing.assert_close(
        classification_loss(LOGITS, INDICES, recipe),
        classification_loss(LOGITS, F.one_hot(INDICES, 3).float(), recipe),
    )
    smooth = classification_loss(LOGITS, targets, Recipe(loss="bce", label_smoothing=0.2))
    torch.testing.assert_close(smooth, F.binary_cross_entropy_with_logits(LOGITS, targets * 0.8 + 0.1))


def test_a_teacher_sees_pixels_as_it_was_trained_on_them() -> None:
    frames = torch.randint(0, 256, (2, 4, 3, 5, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    student, teacher = Normalisation(), Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    torch.testing.assert_close(Renormalised(student, teacher)(student(frames)), teacher(frames))


def test_cross_entropy_of_several_classes_is_refused() -> None:
    check_targets(torch.tensor([[0.25, 0.75]]), PLAIN)
    check_targets(torch.tensor([[1.0, 1.0]]), Recipe(loss="bce"))
    check_targets(INDICES, PLAIN)
    with pytest.raises(InvalidValue, match="--loss bce"):
        check_targets(torch.tensor([[1.0, 1.0]]), PLAIN)


@pytest.mark.parametrize("loss", ["cross-entropy", "bce"])
def test_a_student_that_says_what_its_teacher_says_has_nothing_to_learn(loss: str) -> None:
    recipe = Recipe(loss=loss, distill_temperature=3.0)
    student = LOGITS.clone().requires_grad_()
    distillation_loss(student, LOGITS, recipe).backward()
    torch.testing.assert_close(student.grad, torch.zeros_like(LOGITS), atol=1e-6, rtol=0)


def test_the_divergence_of_a_teacher_by_hand() -> None:
    taught = LOGITS.flip(1)
    p, q = (taught / 2).softmax(1), (LOGITS / 2).softmax(1)
    expected = (p * (p / q).log()).sum(1).mean() * 4
    torch.testing.assert_close(distillation_loss(LOGITS, taught, Recipe(distill_temperature=2.0)), expected)


def mixed(recipe: Recipe, seed: int, labels: torch.Tensor = INDICES) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    clips = torch.arange(2.0).view(2, 1, 1, 1, 1).expand(2, 3, 4, 6, 6)
    return Mixing(recipe, 3)(clips, labels)


def test_mixup_adds_clips_and_classes_in_the_same_shares() -> None:
    clips, targets = mixed(Recipe(mixup=0.8), 1)
    assert type(clips) is torch.Tensor
    share = clips[0].unique()
    assert len(share) == 1
    torch.testing.assert_close(targets[0], torch.tensor([share.item(), 0.0, 1 - share.item()]))
    torch.testing.assert_close(targets.sum(1), torch.ones(2))
    again, _ = mixed(Recipe(mixup=0.8), 1)
    assert torch.equal(clips, again)
    other, _ = mixed(Recipe(mixup=0.8), 2)
    assert not torch.equal(clips, other)


def test_cutmix_cuts_one_box_through_all_frames() -> None:
    clips, targets = mixed(Recipe(cutmix=1.0), 3)
    assert set(clips[0].unique().tolist()) <= {0.0, 1.0}
    assert torch.equal(clips[0], clips[0, :1, :1].expand(3, 4, 6, 6))
    torch.testing.assert_close(targets[0, 0], clips[0, 0, 0].mean())


def test_several_classes_and_shares_of_steps() -> None:
    several = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    _, targets = mixed(Recipe(mixup=0.8, loss="bce"), 1, several)
    torch.testing.assert_close(targets.sum(0), several.sum(0))
    _, targets = mixed(Recipe(mixup=0.8, mix_share=0.0), 1)
    assert torch.equal(targets, INDICES)
    assert not Mixing(Recipe(), 3)
    seen = {len(mixed(Recipe(mixup=0.8, cutmix=1.0), seed)[0][0].unique()) for seed in range(12)}
    assert seen == {1, 2}
