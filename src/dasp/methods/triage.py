"""Triage: find out which sensor is hurt, treat that one, and believe the others.

Our own method (docs/triage.md has its figures). In the order of that page: how far each modality is
to be believed, the condition that the stream is in, the treatment of tokens, the prediction, and
learning. Without learning it makes no backward pass.
"""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from dasp.core.contract import token_width
from dasp.core.errors import InputError, OptionError
from dasp.core.types import Diagnosis, Fused, Prediction, Step, Tokens
from dasp.methods.base import METHODS, device_of, full_precision, not_negative, one_of, whole
from dasp.methods.dasp import AdapterPair, Dasp, Role, RoleOf, mean_prediction
from dasp.methods.diagnosis import Diagnoser, summaries
from dasp.methods.losses import entropy, with_spoilt_rows
from dasp.methods.passes import Adapt, LearningPasses, SourcePasses, adapted_logits, joined
from dasp.methods.rebalance import MEMORY, rebalance
from dasp.methods.renormalise import ConditionNorms, Moments, running_norms

MOST = 2.0  # the weight of what is believed beside the joint prediction, at most
CALM = 16  # rows after which half of an alignment is made
RECENT = 8  # rows that are enough to see that the condition has changed
MOVED = 4.0  # how much further than by chance a mean token must be from earlier ones
FULL_BATCH = 64  # samples that are worth the full learning rate
EVEN_SHARE = 0.5  # of a uniform class mix beside the one that is believed, in the loss
TEACHES = 0.5  # share of the clean information below which nothing is learned from a prediction
UNCALIBRATED = 0.5  # strength of `balance` before `fit`, when views may favour some classes
SOUND = 0.5  # share of the clean agreement that a source model must keep where others tell nothing
SURE = 0.85  # the same, at least, if nobody else sees that classes are few
ROUNDS = 20  # of expectation and maximisation
KEEPS = 0.9  # share of the untreated information or agreement below which treatment is given up
LOSES = 0.98  # the same for information, where no modality is healthy
MENDS = 1.6  # the same for agreement, where few classes are seen with and without treatment
SUSPECT = 0.4  # score from which the other of two modalities cannot vouch where classes are few
AGREES = 4.0  # deviations from chance of views that confirm a treatment
ANSWERS = 32, 128  # fewest and most answers that tell whether classes came in an order so far
FAINT = 0.01  # deviation of a probability that is hardly more than none

FEW = 32  # clean samples; of fewer, `fit` warns
FEW_CLASSES = "classes are few or come in an order, or seem to"
NONE_HEALTHY = "no modality is healthy for sure"

MISSING, HEALTHY, FLAGGED = 0, 1, 2


# Whom to believe


def log_probabilities(logits: Tensor) -> Tensor:
    """Return log p (B, C), at least −50, so that a class that is ruled out has finite sums."""
    return logits.log_softmax(dim=-1).clamp(min=-50)


def reliability(views: Tensor, clean: Tensor | None) -> Tensor:
    """Return how well each view agrees with the others, relative to clean samples: (M,) in 0..1.

    Views (n, M, C) are log-probabilities. The agreement of one with the others is the mean over
    samples of Σ p·q, where q is the normalised product of the others. Without clean views
    (m, M, C) to compare with, each is compared with its agreement with itself.
    """
    if views.shape[1] == 1:
        return views.new_ones(1)
    found, others = _agreement(views)
    if clean is None:
        own = [rows.exp().square().sum(dim=2).mean(dim=0) for rows in (views, others)]
        usual = (own[0] * own[1]).sqrt()
    else:
        usual, _ = _agreement(clean)
    return (found / usual.clamp(min=1e-12)).clamp(max=1)


def _agreement(views: Tensor) -> tuple[Tensor, Tensor]:
    others = (views.sum(dim=1, keepdim=True) - views).log_softmax(dim=2)
    return (views.exp() * others.exp()).sum(dim=2).mean(dim=0), others


def information(rows: Tensor) -> Tensor:
    """Return how much predictions tell about the classes: log p (n, …, C) → (…), in nats.

    That is H(mean of p) − mean of H(p): 0 if all samples get the same answer, or none.
    """
    shares = rows.exp()
    mean = shares.mean(dim=0)
    certain = (shares * rows).sum(dim=-1).mean(dim=0)
    return (certain - (mean * mean.clamp(min=1e-12).log()).sum(dim=-1)).clamp(min=1e-6)


def belief(views: Tensor, weights: Tensor) -> Tensor:
    """Return log h (n, C), the normalised product of views (n, M, C) to the power of weights."""
    return (views * weights[:, None]).sum(dim=1).log_softmax(dim=1)


def contradiction(joint: Tensor, believed: Tensor) -> float:
    """Return the mean of KL(joint ‖ believed) over the rows of log-probabilities (n, C)."""
    return float((joint.exp() * (joint - believed)).sum(dim=1).mean())


def is_steady(believed: Tensor) -> bool:
    """Tell whether older and newer rows (n, C) may have the same classes: a stream in no order."""
    half = len(believed) // 2
    return half < RECENT or have_same_mix(believed[-2 * half : -half], believed[-half:])


def have_same_mix(some: Tensor, others: Tensor) -> bool:
    """Tell whether two sets of predictions (n, C) and (m, C) may be of the same mix of classes.

    χ² of their counts of predicted classes, against its mean and three deviations.
    """
    classes = some.shape[1]
    one, other = (
        torch.bincount(rows.argmax(dim=1), minlength=classes).float() for rows in (some, others)
    )
    seen, ratio = one + other, math.sqrt(len(others) / len(some))
    distance = float(((ratio * one - other / ratio).square() / seen.clamp(min=1)).sum())
    freedom = float((seen > 0).sum()) - 1
    return distance <= freedom + 3 * math.sqrt(2 * freedom)


def has_few_classes(rows: Tensor, usual: Tensor | None = None) -> bool:
    """Tell whether two of the predictions (n, C) are of one class twice as often as usual.

    Usual is what two of the usual ones (m, C) are, or 1/C. 1 / Σ_c q_c² is the effective number
    of classes; with n samples, Σ n_c (n_c − 1) / (n (n − 1)) is an unbiased estimate of the sum.
    """
    expected = 1 / rows.shape[1] if usual is None else same_class(usual)
    return same_class(rows) > 2 * expected


def same_class(rows: Tensor) -> float:
    """Return how often two of the predictions (n, C) are of one class."""
    counts = torch.bincount(rows.argmax(dim=1)).float()
    return float((counts * (counts - 1)).sum()) / max(len(rows) * (len(rows) - 1), 1)


def class_mix(rows: Tensor, usual: Tensor) -> Tensor:
    """Return the most likely class mix (C,) of samples whose predictions (n, C) are log p.

    Predictions are made for the usual mix (C,). If they are unsure, their mean is nearer to it than
    the mix that the samples have; expectation and maximisation find that one.
    """
    likely = rows.exp() / usual.clamp(min=1e-6)
    mix = usual
    for _ in range(ROUNDS):
        shares = likely * mix
        mix = (shares / shares.sum(dim=1, keepdim=True).clamp(min=1e-30)).mean(dim=0)
    return mix


def covariance(views: Tensor) -> float:
    """Return the covariance of probabilities of two views, summed over pairs and classes."""
    centred = views.exp() - views.exp().mean(dim=0)
    pairs = combinations(centred.unbind(dim=1), 2)
    return sum(float((one * other).sum(dim=1).mean()) for one, other in pairs)


def concordance(views: Tensor) -> float:
    """Return how surely views (n, M, C) agree sample by sample.

    That is Σ over pairs of views, samples and classes of the product of their standardised
    probabilities, in standard deviations over all ways to pair the samples of one view with those
    of the other. Samples of one class agree by chance only, whatever their views say; so do those
    of a view that tells nothing.
    """
    centred = views.exp() - views.exp().mean(dim=0)
    scaled = centred / (centred.square().mean(dim=0).sqrt() + FAINT)
    found, variance = 0.0, 0.0
    with full_precision(views):
        for one, other in combinations(scaled.unbind(dim=1), 2):
            found += float((one * other).sum())
            variance += float(((one.T @ one) * (other.T @ other)).sum())
    return found * math.sqrt((len(views) - 1) / max(variance, 1e-12))


# The condition that the stream is in


class ConditionMemory(nn.Module):
    """The last samples of the present condition, one row each.

    A row has the views with and without treatment, the joint predictions with and without it, and
    the mean tokens. A condition is a set of flagged modalities and a mean token of each of them.
    The rows are a buffer, so resets and saved states cover them.
    """

    state: Tensor  # (M,) MISSING, HEALTHY or FLAGGED
    rows: Tensor  # (n, 2·M·C + 2·C + widths), oldest first

    def __init__(self, widths: Mapping[str, int], classes: int) -> None:
        super().__init__()
        self.widths, self.names, self.classes = dict(widths), list(widths), classes
        self.capacity = MEMORY * classes
        self.register_buffer("state", torch.zeros(len(widths), dtype=torch.int64))
        total = 2 * (len(widths) + 1) * classes + sum(widths.values())
        self.register_buffer("rows", torch.zeros(0, total))

    def joined(self, state: Tensor, rows: Tensor) -> Tensor:
        """Return rows (B, W) of a batch behind the remembered ones of the same condition."""
        if not torch.equal(state, self.state):
            return rows
        both = torch.cat([self.rows, rows])
        newest = max(len(rows), RECENT)
        for name, kind in zip(self.widths, state.tolist(), strict=True):
            if kind == FLAGGED and has_moved(self.means(both)[name], newest):
                return both[-newest:]
        return both

    def remember(self, state: Tensor, rows: Tensor) -> None:
        """Keep these rows, as many as there is room for; none if nothing is flagged."""
        kept = rows[-self.capacity :] if (state == FLAGGED).any() else rows[:0]
        self.state, self.rows = state.clone(), kept.detach().clone()

    def views(self, rows: Tensor, treated: bool = False) -> Tensor:
        """Return the log-probabilities of each modality alone (n, M, C), 0 if it is missing.

        Like `joint`, it is a view to write to.
        """
        size = len(self.widths), self.classes
        return rows[:, : 2 * size[0] * size[1]].view(len(rows), 2, *size)[:, int(treated)]

    def joint(self, rows: Tensor, treated: bool = True) -> Tensor:
        """Return the log-probabilities (n, C) of all modalities together; a view to write to."""
        start = (2 * len(self.widths) + (not treated)) * self.classes
        return rows[:, start : start + self.classes]

    def means(self, rows: Tensor) -> dict[str, Tensor]:
        """Return the mean token of each modality {name: (n, D)}, 0 if it is missing."""
        start, found = 2 * (len(self.widths) + 1) * self.classes, {}
        for name, width in self.widths.items():
            found[name] = rows[:, start : start + width]
            start += width
        return found


def has_moved(rows: Tensor, newest: int) -> bool:
    """Tell whether the mean of the newest of rows (n, D) is elsewhere than that of the others.

    ‖x̄ − ȳ‖² relative to tr Σ·(1/n + 1/m), which is 1 on average if both are of one distribution.
    """
    if len(rows) - newest < RECENT:
        return False
    before, last = rows[:-newest], rows[-newest:]
    spread = (before - before.mean(dim=0)).square().sum() / (len(before) - 1)
    gap = (last.mean(dim=0) - before.mean(dim=0)).square().sum()
    return bool(gap > MOVED * spread * (1 / len(before) + 1 / len(last)))


class CleanSamples(nn.Module):
    """What `fit` was given: views and mean tokens of clean samples, as rows of a condition.

    A model that was never trained without one of its modalities favours some classes when it is
    absent. So each view has a bias per class, with which its mean over the clean samples is that of
    the joint prediction.
    """

    rows: Tensor
    bias: Tensor  # (M, C)

    def __init__(self, like: ConditionMemory) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros_like(like.rows))
        self.register_buffer("bias", torch.zeros(len(like.widths), like.classes))

    def fit(self, rows: Tensor, views: Tensor, joint: Tensor) -> None:
        """Keep rows, and correct their views (n, M, C), by joint predictions (n, C)."""
        mix = (joint.exp().sum(dim=0) + 1) / (len(joint) + joint.shape[1])
        for own, bias in zip(views.unbind(dim=1), self.bias, strict=True):
            bias.copy_((rebalance(own, own[:0], 1.0, mix) - own)[0])
        views.copy_(log_probabilities(views + self.bias))
        self.rows = rows


class Treatment(NamedTuple):
    """How a batch is treated."""

    rows: Tensor  # of the condition, those of this batch last
    tokens: Tokens  # those of flagged modalities encoded again, where they can be
    adapt: Adapt
    moments: Mapping[str, Moments]  # what BatchNorms saw of this condition
    refused: str | None  # why nothing is treated


@METHODS.register("triage")
class Triage(Dasp):
    """Diagnose; align flagged modalities; predict from all, as far as each can be believed.

    Paper: none; this method was made for this library in 2026. It needs no labels and, with
    `learn=False`, no gradients. `fit` on clean samples (128 are enough, 32 are few) teaches it what
    healthy modalities look like, how well they agree, and where their tokens lie.

    If nothing is flagged, it predicts what the source model predicts; so it does before `fit` where
    classes are few, and where no modality is healthy for sure, none confirms the treatment of
    another, and classes may come in an order. Otherwise:

    - `align`: flagged modalities are encoded again with BatchNorms that know this condition's
      samples (`renormalise.py`), unless classes are few or come in an order; if their encoders have
      none, or the call was given tokens, their tokens are moved to the clean mean after `fit`;
    - `believe`: the joint prediction is multiplied by the product of the modalities' own
      predictions, each weighted by how reliable it is and how much it still tells. Of three or
      more, flagged ones predict from treated tokens if that is worth more;
    - `balance`: class biases let the predictions of this condition have the class mix that is
      believed, unless the classes are few or come in an order;
    - `learn`: DASP's adapters learn, too, by `lambda_ent`, `lambda_kl` and, for flagged
      modalities, `lambda_kl_biased`, unless the classes are few or come in an order, or the joint
      prediction tells too little. A batch of B < 64 samples uses √(B/64) of the rate.

    If samples vary more than clean ones, each has a damage of its own. Those that are far from
    clean ones by themselves are answered by what is healthy in them, the others as by the source
    model, and nothing is treated or learned.

    If the treated tokens tell less about the classes than the untreated ones, the answer is the
    source model's, and the adapters start over (`Outcome.rollback` says so).

    `queue` is the number of recent samples that the diagnosis uses if a batch has fewer,
    `false_alarms` the share of clean batches that may be flagged.
    """

    answers: Tensor  # (n, C) the last ones that a healthy modality or agreement vouched for

    version = 17
    sharded = True
    auto_change = 0.05  # alignment and belief leave adapters less to do than DASP's have

    def __init__(
        self,
        model: nn.Module,
        *,
        learn: bool = True,
        align: bool = True,
        believe: bool = True,
        balance: bool = True,
        queue: int = 128,
        false_alarms: float = 0.01,
        stable_rank: int = 32,
        lambda_ent: float = 0.5,
        lambda_kl: float = 1.0,
        lambda_kl_biased: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__(
            model, stable_rank=stable_rank, lambda_ent=lambda_ent, lambda_kl=lambda_kl, seed=seed
        )
        for name, value in (
            ("learn", learn), ("align", align), ("believe", believe), ("balance", balance)
        ):  # fmt: skip
            one_of(name, value, True, False)
        whole(0, queue=queue)
        not_negative(lambda_kl_biased=lambda_kl_biased)
        if not 0 < false_alarms < 1:
            raise OptionError(f"false_alarms must be between 0 and 1, not {false_alarms!r}.")
        self.learn, self.align, self.believe, self.balance = learn, align, believe, balance
        self.queue, self.false_alarms = queue, false_alarms
        self.lambda_kl_biased = lambda_kl_biased
        if not learn:
            self.adapters.clear()
        names, device = self.model.modalities, device_of(self.model)
        widths = {name: token_width(self.model, name) for name in names}
        self.diagnoser = Diagnoser(names, queue, false_alarms)
        self.condition = ConditionMemory(widths, self.model.num_classes).to(device)
        self.clean = CleanSamples(self.condition).to(device)
        self.condition_norms = ConditionNorms(self.model, names, CALM, self.condition.capacity)
        self.encodes_again = self.reads_inputs(model, align=align)
        self.register_buffer("answers", torch.zeros(0, self.model.num_classes, device=device))

    @classmethod
    def reads_inputs(cls, model: nn.Module, /, *, align: bool = True, **_options: Any) -> bool:
        """Tell whether the inputs of this model can be encoded again with other statistics."""
        return align and bool(running_norms(model))

    @property
    def fitted(self) -> bool:
        """Whether it knows clean samples."""
        return bool(self.diagnoser.fitted)

    @torch.no_grad()
    def fit(self, source: Iterable[Tokens]) -> None:
        """Learn what the modalities are like on clean samples; 32 are few, 128 enough."""
        seen: dict[str, list[Fused]] = {name: [] for name in self.model.modalities}
        tokens: dict[str, list[Tensor]] = {name: [] for name in self.model.modalities}
        rows = []
        self.clean.bias.zero_()
        for batch in source:
            alone, means = {n: self.fuse({n: own}) for n, own in batch.items()}, summaries(batch)
            rows.append(self._rows(batch, alone))
            joint = self.group.gather(self.fuse(batch).logits)
            self._write(rows[-1], joint, joint)
            for name, fused in alone.items():
                seen[name].append(fused)
                tokens[name].append(means[name])
        if not rows:
            raise InputError(f"fit() was given no clean samples of {', '.join(seen)}.")
        self.diagnoser.fit(
            {name: torch.cat(parts) for name, parts in tokens.items()},
            {name: joined(parts) for name, parts in seen.items()},
        )
        clean, said = torch.cat(rows), None
        if len(clean) < FEW:
            said = f"fit() got {len(clean)} clean samples: mild damage will be missed; give 128."
        elif same_class(self.condition.joint(clean)) == 1:
            said = "fit() got clean samples of one predicted class: others will look like damage."
        if said:
            warnings.warn(said, RuntimeWarning, stacklevel=5)  # of the caller of `tta.fit`
        self.clean.fit(clean, self.condition.views(clean), self.condition.joint(clean))
        self.condition.views(clean, treated=True).copy_(self.condition.views(clean))

    # One batch

    def step(self, batch: Tokens) -> Step:
        """Diagnose, treat, predict; with `learn`, compute the loss and its gradient."""
        source, diagnosis = self._diagnose(batch, remember=True)
        own = self._rows(batch, source.alone)
        if (spoilt := with_spoilt_rows(self.condition.views(own)[:, 0], own)) is not None:
            return Step(spoilt, diagnosis=diagnosis)
        state = self._state(diagnosis)
        alone, untreated = source.alone, source.joint()
        del source  # it holds much memory
        if not diagnosis.biased:
            self._remember(state, own)
            self._note(untreated)
            return Step(untreated, diagnosis=diagnosis, skipped="no modality is flagged")
        if diagnosis.samples:
            self._remember(state, own[:0])
            answer = self._answer_mixed(own, untreated, diagnosis)
            return Step(answer, diagnosis=diagnosis, skipped=_count(diagnosis.samples))
        plan = self._plan(diagnosis, own, batch, untreated)
        rows = plan.rows
        if plan.refused:
            self._remember(state, rows, plan.moments)
            self._note(untreated)
            return Step(untreated, diagnosis=diagnosis, skipped=plan.refused)
        passes = LearningPasses(self, plan.tokens, plan.adapt, alone) if self.learn else None
        logits = passes.logits.detach() if passes else adapted_logits(self, plan.tokens, plan.adapt)
        if (spoilt := with_spoilt_rows(logits, log_probabilities(untreated))) is not None:
            return Step(spoilt, diagnosis=diagnosis)
        self._write(rows, logits, untreated)
        best = self._with_treated_views(state, rows)
        if why := self._harms(state, best):
            return Step(untreated, diagnosis=diagnosis, rollback=why)
        self._remember(state, rows, plan.moments)
        unconfirmed = self._unconfirmed(diagnosis, rows)
        if unconfirmed and not self._in_no_order():
            return Step(untreated, diagnosis=diagnosis, skipped=unconfirmed)
        answer = self._answer(state, best, len(own))
        self._note(answer, vouched=not unconfirmed)
        why = self._cannot_teach(state, best) if passes else "learn=False"
        if passes is None or why:
            treated = ", ".join(sorted(diagnosis.biased))
            return Step(answer, diagnosis=diagnosis, skipped=f"{why}; treated {treated}")
        believed = self._believed(state, best)
        mix = believed[-len(own) :].exp().mean(dim=0).to(logits)
        loss = divergence_from_mix(passes.logits, mix)
        loss = loss + self.lambda_ent * entropy(passes.logits).mean()
        step = self._with_kl(loss, passes, diagnosis, self._roles(diagnosis))
        return replace(step, logits=answer, rate=min(1.0, len(own) / FULL_BATCH) ** 0.5)

    @torch.no_grad()
    def predict(self, batch: Tokens) -> Prediction:
        """Diagnose, treat and predict with the state as it is."""
        source, diagnosis = self._diagnose(batch, remember=False)
        own, state = self._rows(batch, source.alone), self._state(diagnosis)
        if (
            not diagnosis.biased
            or with_spoilt_rows(self.condition.views(own)[:, 0], own) is not None
        ):
            return Prediction(source.joint(), diagnosis)
        untreated = source.joint()
        del source  # it holds much memory
        if diagnosis.samples:
            return Prediction(self._answer_mixed(own, untreated, diagnosis), diagnosis)
        plan = self._plan(diagnosis, own, batch, untreated)
        if plan.refused:
            return Prediction(untreated, diagnosis)
        logits = adapted_logits(self, plan.tokens, plan.adapt)
        if (spoilt := with_spoilt_rows(logits, log_probabilities(untreated))) is not None:
            return Prediction(spoilt, diagnosis)
        best, given_up = self._judge(diagnosis, plan.rows, logits, untreated)
        answer = untreated if given_up else self._answer(state, best, len(own))
        return Prediction(answer, diagnosis)

    @torch.no_grad()
    def roll_back(self) -> None:
        """Return the adapters to the identity, and forget the condition."""
        for pair in cast(Iterable[AdapterPair], self.adapters.values()):
            pair.reset_parameters()
        self._remember(self.condition.state, self.condition.rows[:0])

    @torch.no_grad()
    def adapted_tokens(self, batch: Tokens) -> dict[str, Tensor]:
        """Diagnose, and return the tokens (B, N, D) that `predict` fuses."""
        source, diagnosis = self._diagnose(batch, remember=False)
        if not diagnosis.biased or diagnosis.samples:
            return dict(batch)
        own, untreated = self._rows(batch, source.alone), source.joint()
        plan = self._plan(diagnosis, own, batch, untreated)
        if plan.refused:
            return dict(batch)
        logits = adapted_logits(self, plan.tokens, plan.adapt)
        _, given_up = self._judge(diagnosis, plan.rows, logits, untreated)
        return dict(batch if given_up else plan.adapt(plan.tokens))

    @torch.no_grad()
    def _diagnose(self, batch: Tokens, remember: bool) -> tuple[SourcePasses, Diagnosis]:
        """Compare each modality with itself when clean; before `fit`, as DASP does.

        A call inside `frozen()` sees its own samples alone: the queue belongs to another stream.
        """
        if not self.fitted:
            return super()._diagnose(batch, remember)
        source = SourcePasses(self, batch)
        self.diagnoser.frozen = self.frozen
        with full_precision(next(iter(batch.values()))):
            return source, self.diagnoser(batch, source.alone, remember, self.group)

    def _plan(
        self, diagnosis: Diagnosis, own: Tensor, batch: Tokens, untreated: Tensor
    ) -> Treatment:
        """Plan the treatment of a batch. A call inside `frozen()` knows no earlier rows."""
        state, before = self._state(diagnosis), self.condition.rows
        rows = own if self.frozen else self.condition.joined(state, own)
        self._write(rows, untreated, untreated)
        with full_precision(rows):
            ordinary = self._ordinary(state, rows)
            shifts = self._shifts(state, rows, ordinary)
            refused = self._cannot_treat(state, rows, ordinary)
        goes_on = len(own) < len(rows) == len(before) + len(own)
        moments = self.condition_norms.earlier() if goes_on else {}
        tokens = dict(batch)
        if self.encodes_again and self.inputs is not None and ordinary and not refused:
            for name in sorted(diagnosis.biased):
                raw, earlier = {name: self.inputs[name]}, moments.pop(name, None)
                found = self.condition_norms.encode(self, raw, len(own), earlier)
                if found is not None and self._differs(found[0][name], batch[name]):
                    tokens[name], moments[name] = found[0][name], found[1]
                    shifts.pop(name, None)
        treat = partial(self._treat, shifts=shifts)
        adapt = partial(treat, roles=self._roles(diagnosis))
        if not refused:  # adapters learn from the joint prediction, and may move views apart
            vouched = self._has_voucher(diagnosis, rows)
            if self.fitted and (not vouched or (state != MISSING).sum() > 2):
                self._write_treated_views(state, rows, tokens, adapt if vouched else treat)
        return Treatment(rows, tokens, adapt, moments, refused)

    def _differs(self, tokens: Tensor, usual: Tensor) -> bool:
        """Tell whether any rank's tokens differ from the usual ones."""
        apart = (tokens != usual).flatten(1).any(dim=1)
        return bool(self.group.gather(apart).any())

    def _sees_few(self, rows: Tensor, treated: bool = False) -> bool:
        """Tell whether the joint prediction sees fewer classes than the source in clean samples."""
        usual = self.condition.joint(self.clean.rows, treated=False) if self.fitted else None
        return has_few_classes(self.condition.joint(rows, treated), usual)

    def _remember(
        self, state: Tensor, rows: Tensor, moments: Mapping[str, Moments] | None = None
    ) -> None:
        """Keep the rows of the condition, and the moments that BatchNorms saw in it."""
        self.condition.remember(state, rows)
        self.condition_norms.remember(moments or {})

    def _rows(self, batch: Tokens, alone: Mapping[str, Fused]) -> Tensor:
        """Return the rows (B, W) of all ranks' samples; joint predictions are still 0."""
        like, count = self.condition.rows, len(next(iter(batch.values())))
        empty = like.new_zeros(count, self.model.num_classes)
        views = [
            self._view(place, alone[name].logits) if name in alone else empty
            for place, name in enumerate(self.condition.names)
        ]
        means = [
            batch[name].mean(dim=1).to(like) if name in batch else like.new_zeros(count, width)
            for name, width in self.condition.widths.items()
        ]
        return self.group.gather(torch.cat([*views, *views, empty, empty, *means], dim=1))

    def _view(self, place: int, logits: Tensor) -> Tensor:
        """Return the log-probabilities (B, C) of one modality alone, as they are remembered."""
        return log_probabilities(logits.to(self.clean.bias) + self.clean.bias[place])

    def _state(self, diagnosis: Diagnosis) -> Tensor:
        kinds = [
            MISSING if name not in diagnosis.scores else HEALTHY + (name in diagnosis.biased)
            for name in self.condition.widths
        ]
        return torch.tensor(kinds, device=self.condition.state.device)

    # Treatment

    def _weights(self, state: Tensor, rows: Tensor) -> Tensor:
        """Return the weight (M,) of each modality's own prediction, 0 if it is missing.

        It is reliability times relative information. Two others can outvote a modality that looks
        healthy; one cannot.
        """
        present = state != MISSING
        reliable, told = self._worth(present, rows)
        found = reliable * told / told.max()
        if present.sum() < 3 and (state == HEALTHY).any():
            found = torch.where(state[present] == FLAGGED, found, 1.0)
        weights = torch.zeros_like(state, dtype=rows.dtype)
        weights[present] = found / found.max().clamp(min=1e-12)
        return weights

    def _worth(self, present: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return reliability and relative information of the views that are present: (K,) each."""
        views = self.condition.views(rows)[:, present]
        clean = self.condition.views(self.clean.rows)[:, present] if self.fitted else None
        told = information(views) / (1 if clean is None else information(clean))
        return reliability(views, clean), told

    def _told(self, rows: Tensor, clean: Tensor) -> float:
        """Return the information of rows (n, C), relative to that of clean rows after `fit`."""
        return float(information(rows) / (information(clean) if self.fitted else 1))

    def _joint_told(self, state: Tensor, rows: Tensor) -> float:
        """Return the relative information of the joint prediction.

        If a modality is missing, its clean counterpart is the product of the views that are left.
        """
        clean, present = self.condition.joint(self.clean.rows), state != MISSING
        if not present.all():
            clean = belief(self.condition.views(self.clean.rows), present.to(rows))
        return self._told(self.condition.joint(rows), clean)

    def _believed(self, state: Tensor, rows: Tensor) -> Tensor:
        return belief(self.condition.views(rows), self._weights(state, rows))

    def _ordinary(self, state: Tensor, rows: Tensor) -> bool:
        """Tell whether classes come in no order, and are not few.

        Where they are few, whatever favours some of them may be right. Healthy modalities tell;
        after `fit`, they or all that is believed should see classes as often as in clean samples.
        Without a healthy one, `_unconfirmed` and `_in_no_order` decide.
        """
        weights, views, healthy = self._weights(state, rows), self.condition.views, state == HEALTHY
        if not is_steady(belief(views(rows), weights)):
            return False
        if not healthy.any():
            return True
        if not self.fitted:
            return not has_few_classes(belief(views(rows), weights * healthy))
        return any(
            have_same_mix(belief(views(rows), own), belief(views(self.clean.rows), own))
            for own in (weights * healthy, weights)
        )

    def _cannot_treat(self, state: Tensor, rows: Tensor, ordinary: bool) -> str | None:
        """Return why nothing should be treated, or None.

        A batch of few classes has a mean token of its own, which may be taken for damage; before
        `fit`, always. After it, the source model is left alone there if it agrees with the healthy
        modalities nearly as well as on clean samples: the less these tell, the more it may lose. If
        it alone sees few classes, that may be the damage.
        """
        if not self.fitted:
            return None if ordinary else f"{FEW_CLASSES}: without fit() that looks like damage"
        few = len(rows) >= RECENT and self._sees_few(rows)
        if not (state == HEALTHY).any() or (ordinary and not few):
            return None
        found, expected = self._agreement_of_source(state, rows)
        needed = max(SOUND + expected, SURE if ordinary else 0)
        if found < needed * expected:
            return None
        kept = found / max(expected, 1e-12)
        return f"{FEW_CLASSES}; the source keeps {kept:.0%} of its agreement with the others"

    def _agreement_of_source(self, state: Tensor, rows: Tensor) -> tuple[float, float]:
        """Return how well the source model agrees with healthy modalities, and what is expected.

        That is the agreement on clean samples of the classes that it predicts.
        """
        weights = self._weights(state, rows) * (state == HEALTHY)
        healthy, source = [], []
        for own in (rows, self.clean.rows):
            healthy.append(belief(self.condition.views(own), weights).exp())
            source.append(self.condition.joint(own, treated=False).exp())
        agreed = (healthy[1] * source[1]).sum(dim=0) / source[1].sum(dim=0).clamp(min=1e-6)
        found = (healthy[0] * source[0]).sum(dim=1).mean()
        return float(found), float((source[0] @ agreed).mean())

    def _shifts(self, state: Tensor, rows: Tensor, ordinary: bool) -> dict[str, Tensor]:
        """Return the vector (D,) by which the tokens of each flagged modality are moved.

        It leads to the mean of clean samples, weighted to the class mix that is believed: by half,
        or fully if classes are few or come in an order. Without a healthy modality the mix is
        unknown: no weights, and no shift if classes come in an order.
        """
        if not (self.align and self.fitted):
            return {}
        weights, views = self._weights(state, rows), self.condition.views
        believed = belief(views(rows), weights)
        share = rows.new_full((len(self.clean.rows),), 1 / len(self.clean.rows))
        if (state == HEALTHY).any():
            clean = belief(views(self.clean.rows), weights).exp()
            usual = clean.mean(dim=0)
            if ordinary:
                wanted = (believed.exp().mean(dim=0) + usual) / 2
            else:
                wanted = class_mix(believed, usual)
            share = clean @ (wanted / usual.clamp(min=1e-12))
            share = share / share.sum()
        elif not ordinary:
            return {}
        there, here = self.condition.means(self.clean.rows), self.condition.means(rows)
        calm = len(rows) / (len(rows) + CALM)
        return {
            name: calm * (share @ there[name] - here[name].mean(dim=0))
            for name, kind in zip(self.condition.widths, state.tolist(), strict=True)
            if kind == FLAGGED
        }

    def _treat(
        self, batch: Tokens, shifts: Mapping[str, Tensor], roles: RoleOf | None = None
    ) -> dict[str, Tensor]:
        """Move tokens, and apply the adapters of these roles."""
        moved = {n: t + shifts[n].to(t) if n in shifts else t for n, t in batch.items()}
        return self._adapt(moved, roles) if self.learn and roles else moved

    def _write_treated_views(
        self, state: Tensor, rows: Tensor, batch: Tokens, adapt: Adapt
    ) -> None:
        """Write this batch's views of treated tokens into the last rows."""
        for place in (state == FLAGGED).nonzero()[:, 0].tolist():
            name = self.condition.names[place]
            own = self._view(place, adapted_logits(self, {name: batch[name]}, adapt))
            last = self.condition.views(rows, treated=True)[-len(own) :, place]
            last.copy_(torch.where(own.isfinite(), own, last))

    def _with_treated_views(self, state: Tensor, rows: Tensor) -> Tensor:
        """Return rows in which views are those of treated tokens, if these are worth more.

        Only others can tell that, so it takes three modalities, and clean samples to compare with.
        """
        present = state != MISSING
        if not self.fitted or present.sum() < 3:
            return rows
        reliable, told = self._worth(present, rows)
        best, treated = rows.clone(), self.condition.views(rows, treated=True)
        for place in (state == FLAGGED).nonzero()[:, 0].tolist():
            trial = rows.clone()
            self.condition.views(trial)[:, place] = treated[:, place]
            here, (agrees, tells) = int(present[:place].sum()), self._worth(present, trial)
            if agrees[here] * tells[here] > reliable[here] * told[here]:
                self.condition.views(best)[:, place] = treated[:, place]
        return best

    def _has_voucher(self, diagnosis: Diagnosis, rows: Tensor) -> bool:
        """Tell whether a healthy modality vouches for a treatment.

        Where classes are few or come in an order, a damaged modality may look like a healthy one of
        other classes. There the other one of two must look healthy beyond doubt. The only one that
        is present has no other to ask: it is treated, unless it sees few classes, as may be right.
        """
        healthy = [diagnosis.scores[name] for name in diagnosis.scores.keys() - diagnosis.biased]
        if not healthy:
            return len(diagnosis.scores) == 1 and not self._sees_few(rows)
        if not self.fitted or len(diagnosis.scores) > 2 or healthy[0] <= SUSPECT:
            return True
        return self._ordinary(self._state(diagnosis), rows)

    def _unconfirmed(self, diagnosis: Diagnosis, rows: Tensor) -> str | None:
        """Return why a treatment that no healthy modality vouches for is not believed, or None.

        None tells whether classes are few, so that their mean tokens are where they should be. But
        a treatment that is right lets views of different modalities agree, sample by sample: more
        than by chance, and about as well as without it. If few classes are seen with and without
        treatment, that may be so, or damage: tokens that are moved must then agree much better.
        """
        if self._has_voucher(diagnosis, rows):
            return None
        present = self._state(diagnosis) != MISSING
        if present.sum() == 1:
            return f"{NONE_HEALTHY}, and {FEW_CLASSES}"
        views = [self.condition.views(rows, treated)[:, present] for treated in (False, True)]
        before, after = (max(covariance(own), 0.0) for own in views)
        if len(rows) < 2 * RECENT:
            return f"{NONE_HEALTHY}: {len(rows)} samples are too few to confirm a treatment"
        if not concordance(views[1]) > AGREES:
            return f"{NONE_HEALTHY}: treated, they agree by chance only"
        few = self._sees_few(rows) and self._sees_few(rows, treated=True)
        few = few and not views[0].allclose(views[1], atol=FAINT)
        if after >= (MENDS if few else KEEPS) * before:
            return None
        found = f"{NONE_HEALTHY}: treated, they have {after / before:.0%} of their agreement"
        return f"{found}, and {FEW_CLASSES}" if few else found

    def _in_no_order(self) -> bool:
        """Tell whether the last answers have the class mix of clean samples, and are in no order.

        Then few classes are unlikely, and mean tokens that are elsewhere are damage.
        """
        if self.frozen or len(self.answers) < ANSWERS[0]:
            return False
        usual = self.condition.joint(self.clean.rows)
        return is_steady(self.answers) and have_same_mix(self.answers, usual)

    def _judge(
        self, diagnosis: Diagnosis, rows: Tensor, logits: Tensor, untreated: Tensor
    ) -> tuple[Tensor, str | None]:
        """Return rows with these joint logits in the last ones, and why treatment is given up."""
        state = self._state(diagnosis)
        self._write(rows, logits, untreated)
        best = self._with_treated_views(state, rows)
        if (why := self._harms(state, best)) or self._in_no_order():
            return best, why
        return best, self._unconfirmed(diagnosis, rows)

    @torch.no_grad()
    def _note(self, logits: Tensor, vouched: bool = True) -> None:
        """Remember answers (B, C); ones that nobody vouches for use up as many earlier ones."""
        if vouched:
            own = log_probabilities(logits.detach().to(self.answers))
            self.answers = torch.cat([self.answers, own])[-ANSWERS[1] :]
        else:
            self.answers = self.answers[len(logits) :]

    # Prediction

    def _write(self, rows: Tensor, *joint: Tensor) -> None:
        """Write joint logits (B, C), treated and untreated, into the last rows."""
        for treated, logits in zip((True, False), joint, strict=True):
            own = self.condition.joint(rows, treated)
            own[-len(logits) :] = log_probabilities(logits).to(rows)

    def _answer(self, state: Tensor, rows: Tensor, count: int) -> Tensor:
        """Return log p (count, C) of the last rows."""
        present = int((state != MISSING).sum())
        answer, believed = self._believing(state, rows), self._believed(state, rows)
        vouched = present > 2 or (state == HEALTHY).any()
        if self.balance and vouched and self._ordinary(state, rows):
            mix = (believed.exp().sum(dim=0) + 1) / (len(rows) + believed.shape[1])
            strength = 1.0 if self.fitted else UNCALIBRATED
            return rebalance(answer[-count:], answer[:-count], strength, mix).log_softmax(dim=1)
        return answer[-count:].clone()

    def _answer_mixed(self, own: Tensor, joint: Tensor, diagnosis: Diagnosis) -> Tensor:
        """Return log p (B, C) if not all samples are damaged: those alike are one condition."""
        self._write(own, joint, joint)
        answer = self.condition.joint(own).clone()
        states = self._state(diagnosis).repeat(len(own), 1)
        for name, damaged in diagnosis.samples.items():
            healthy = ~torch.tensor(damaged, device=states.device)
            states[healthy, self.condition.names.index(name)] = HEALTHY
        for found in sorted(set(map(tuple, states.tolist()))):
            if FLAGGED in found:
                state = states.new_tensor(found)
                alike = (states == state).all(dim=1)
                answer[alike] = self._believing(state, own[alike])
        return answer

    def _believing(self, state: Tensor, rows: Tensor) -> Tensor:
        """Return log p (n, C): the joint prediction times what is believed, as far as needed."""
        answer, believed = self.condition.joint(rows), self._believed(state, rows)
        if not self.believe or (state != MISSING).sum() < 2:
            return answer
        return (answer + self._trust(state, rows, believed) * believed).log_softmax(dim=1)

    def _trust(self, state: Tensor, rows: Tensor, believed: Tensor) -> float:
        """Return the weight of what is believed beside the joint prediction, from 0 to 2.

        Three views vouch for each other: the weight grows as the joint prediction contradicts
        them. Two cannot: it grows as what is believed tells more than the joint prediction.
        """
        if (state != MISSING).sum() > 2:
            found = contradiction(self.condition.joint(rows), believed)
        else:
            clean = belief(self.condition.views(self.clean.rows), self._weights(state, rows))
            gain = self._told(believed, clean) / self._joint_told(state, rows) - 1
            found = MOST * max(gain, 0.0)
        return min(len(rows) / (len(rows) + RECENT) * found, MOST)

    def _harms(self, state: Tensor, rows: Tensor) -> str | None:
        """Say so if treated tokens tell less about the classes than untreated ones.

        A batch of few classes has little to tell. What counts there is the agreement with what is
        believed.
        """
        if len(rows) < 2 * RECENT:
            return None
        joint = [self.condition.joint(rows, treated) for treated in (True, False)]
        if (state == HEALTHY).any() and not self._ordinary(state, rows):
            what, weights = "agreement with the others", self._weights(state, rows)
            believed = belief(self.condition.views(rows), weights)
            usual = belief(self.condition.views(self.clean.rows), weights).exp().mean(dim=0)
            ratio = class_mix(believed, usual).clamp(min=1e-6) / usual.clamp(min=1e-6)
            believed = (believed + ratio.log()).log_softmax(dim=1).exp()
            treated, untreated = ((own.exp() * believed).sum(dim=1).mean() for own in joint)
        else:
            treated, untreated = map(information, joint)
            what = "information"
        if treated >= (KEEPS if (state == HEALTHY).any() else LOSES) * untreated:
            return None
        return f"treatment left {float(treated / untreated):.0%} of the source's {what}"

    # Learning

    def _cannot_teach(self, state: Tensor, rows: Tensor) -> str | None:
        """Return why nothing should be learned from this condition, or None."""
        if self.fitted and (told := self._joint_told(state, rows)) < TEACHES:
            if len(rows) < RECENT:
                return f"{len(rows)} samples in this condition are too few to learn from"
            return f"the prediction tells {told:.0%} of what it tells on clean samples"
        if not (state == HEALTHY).any() and self._sees_few(rows):
            return f"{NONE_HEALTHY}, and {FEW_CLASSES}"
        return None if self._ordinary(state, rows) else FEW_CLASSES

    def _kl_weight(self, role: Role) -> float:
        return self.lambda_kl_biased if role == "plastic" else self.lambda_kl


def divergence_from_mix(logits: Tensor, mix: Tensor) -> Tensor:
    """Return KL(p̄ ‖ half the mix of classes (C,), half uniform) of logits (B, C): ()."""
    mean = mean_prediction(logits)
    wanted = (1 - EVEN_SHARE) * mix + EVEN_SHARE / len(mix)
    return (mean * (mean.log() - wanted.log())).sum()


def _count(samples: Mapping[str, Sequence[bool]]) -> str:
    found = ", ".join(f"{name} in {sum(damaged)}" for name, damaged in samples.items())
    of = len(next(iter(samples.values())))
    return f"damage differs from sample to sample ({found} of {of} here): answered one by one"
