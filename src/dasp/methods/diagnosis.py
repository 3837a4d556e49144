"""Diagnosis: tell which modalities are damaged by comparing each with itself when clean.

Each sample of a modality has five *features*: the length of its embedding, the entropy of its
prediction, how far its mean token lies outside the directions in which clean ones vary, how much
neighbouring tokens differ, and how much they differ outside the directions in which those of clean
samples do. Their mean over a batch depends on the classes in the batch, so it is not compared with
the mean of all clean samples but with what a regression, learned from clean samples, expects of
*these* classes:

    feature = intercept + Σ_c p_c · effect_c + noise,    effect_c ~ N(0, A),

where p is a predicted distribution over classes. The distance between mean and expectation is
relative to its uncertainty. That includes the uncertainty of the effects, and what p does not tell
about a class: a batch of few classes must be further away than one of all. This is done twice, with
p from the modality itself and from the others. A damaged modality deviates from both; a healthy one
whose partner is damaged agrees with its own p. So the smaller distance counts.

The modalities are then judged together (`Diagnoser._scores`). If one contradicts the others, one of
them is damaged: the most suspicious one needs less evidence, and one that three or more outvote
cannot speak for itself. What is flagged no longer counts among the others.

docs/diagnosis.md has the equations, the choices and the figures.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dasp.core.errors import InputError
from dasp.core.types import Diagnosis, Fused, Tokens
from dasp.methods.distributed import ALONE, Ranks
from dasp.methods.losses import entropy

FEATURES = 5
STEPS = 16  # differences between neighbouring tokens that are looked at
# Columns of what is remembered of a sample: whether the modality was there, whether it is from
# after the last change, its features, its prediction.
THERE, COUNTS, SEEN, SHARES = 0, 1, slice(2, 2 + FEATURES), slice(2 + FEATURES, None)
FEWEST, MOST = 8, 512  # clean samples: fewer are refused, of more some are left out
FOLDS = 32  # parts of the clean samples; the directions for one part are found in the others
AXES = 32  # most directions in which clean mean tokens are allowed to vary
FURTHEST = 4.0  # spreads from the middle at which a feature is cut off, so that none dominates
EFFECTS = (1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # candidates of A, in units of the noise
USUAL = 4.0  # samples that the noise of all classes counts for in the noise of one class
LEAST = 0.02  # share of a feature's variance that is never explained
OTHER_DAY = 256  # clean samples of another day differ: more than this many do not sharpen a test
CAUTION = 4  # clean samples that count as one degree of freedom: classes differ in more than means
UNKNOWN = 1 / 8  # variance of an expectation, in units of the noise, from which it does not count
LEAD = 1.5  # ratio to the second score from which the highest one explains a contradiction
BLAME = 2.0, 3.0  # factor of that score for a significant contradiction, and the largest factor
UNAIDED = 1.75  # by how much more a modality must deviate if the only other one is damaged
ASSUMED = 16.0  # samples that the noise of clean samples counts for in the noise of a batch
RECENT = 8  # samples that are enough to see that the stream has changed
WIDER = 1.3  # by how much more than chance samples must vary if not all have the same damage
OUTLYING = 2 / 3  # of the way from the rest to the far ones: what is beyond it is damaged
STILL = 1e-3  # spreads by which the features of a sensor differ that repeats itself
SURENESS = 4.0, 0.3  # slope and offset of the log-odds of damage, by the logarithm of the score
FEWER = -0.8, 1.2  # what is added to both for a quarter of the 512 clean samples, at most twice


def summaries(tokens: Tokens) -> dict[str, Tensor]:
    """Return what the diagnosis needs of tokens (B, N, D), in float64 on the CPU: (B, 1 + 16, D).

    First the mean token, then 16 differences between neighbouring tokens, evenly spaced: zeros if
    there is one token only.
    """
    found = {}
    for name, value in tokens.items():
        own = value.float()
        steps = own.diff(dim=1) if own.shape[1] > 1 else torch.zeros_like(own)
        chosen = torch.linspace(0, steps.shape[1] - 1, STEPS).round().long().to(own.device)
        found[name] = _plain(torch.cat([own.mean(dim=1, keepdim=True), steps[:, chosen]], dim=1))
    return found


def empty_buffers(module: nn.Module, **dimensions: int) -> None:
    """Register float64 buffers without elements, which `fit` replaces."""
    for name, count in dimensions.items():
        module.register_buffer(name, torch.zeros([0] * count, dtype=torch.float64))


def _plain(values: Tensor) -> Tensor:
    return values.detach().to("cpu", torch.float64)


class Evidence(NamedTuple):
    """What speaks for damage of a modality, each relative to its limit."""

    own: float  # distance from what is expected of its own predictions
    given: float | None  # and of those of others, None if that is not known
    contradiction: float  # how much less it agrees with them than expected


class Clean(nn.Module):
    """The features of clean samples of one modality, and what to expect for a mix of classes.

    `groups` are the sets of other modalities whose predictions it is compared with.
    """

    centre: Tensor  # (D,) mean of the mean tokens
    axes: Tensor  # (D, K) directions in which they vary most
    coarse: Tensor  # (D, K) directions in which neighbouring tokens differ most
    middle: Tensor  # (5,) median of the features
    spread: Tensor  # (5,)
    furthest: Tensor  # () distance that few single samples exceed
    usual: Tensor  # () variance of clean samples, see `variance`
    agreement: Tensor  # (2, groups) mean and spread of the agreement with each group
    repeats: Tensor  # () whether two clean samples are alike

    def __init__(self, groups: Sequence[tuple[str, ...]]) -> None:
        super().__init__()
        empty_buffers(self, centre=1, axes=2, coarse=2, middle=1, spread=1, furthest=0, usual=0)
        empty_buffers(self, agreement=2, repeats=0)
        self.groups = list(groups)
        self.given_own = Expectation(power=0)
        self.given_others = nn.ModuleList(Expectation(power=4) for _ in groups)

    def fit(
        self,
        known: Tensor,
        alone: Fused,
        shares: Mapping[str, Tensor],
        every: Tensor,
        false_alarms: float,
    ) -> None:
        """Learn from summaries (n, 1 + S, D), the modality alone, and predictions (n, C).

        Those are of each of the other modalities, and of all of them together.
        """
        tokens, steps = known[:, 0], known[:, 1:]
        self.centre, self.axes = directions(tokens)
        kept = self.axes.shape[1]
        every_step = products(steps)
        self.coarse = main_axes(every_step, kept)
        folds = min(FOLDS, len(tokens))
        fold = torch.arange(len(tokens)) % folds
        outside, rough, fine = torch.empty(3, len(tokens), dtype=torch.float64)
        for part in range(folds):  # samples lie nearer to directions found in themselves
            held = fold == part
            outside[held] = outside_of(tokens[held], *directions(tokens[~held], len(tokens)))
            coarse = main_axes(every_step - products(steps[held]), kept)
            rough[held], fine[held] = roughness(steps[held], coarse)
        found = features(alone, outside, rough, fine)
        low, self.middle, high = found.quantile(_plain(torch.tensor([0.16, 0.5, 0.84])), dim=0)
        self.spread = ((high - low) / 2).clamp(min=1e-4)
        rows, own = self._scaled(found), _plain(alone.logits.softmax(dim=1))
        self.given_own.fit(rows, own, every)
        self.furthest = self.distance(rows).quantile(1 - false_alarms)
        self.usual = self.variance(rows)
        self.repeats = (torch.pdist(rows, p=torch.inf) < STILL).any().to(rows)
        mixes = [agreed([shares[name] for name in group]) for group in self.groups]
        agreement = [(own * mix).sum(dim=1) for mix in mixes]
        self.agreement = rows.new_tensor(
            [[a.mean() for a in agreement], [a.std().clamp(min=1e-4) for a in agreement]]
        )
        for place, mix in enumerate(mixes):
            self._given(place).fit(self._with_agreement(rows, own, mix, place), mix, every)

    @property
    def count(self) -> int:
        """The number of clean samples."""
        return len(self.given_own.mix)

    def look(self, seen: Tensor, alone: Fused) -> Tensor:
        """Return the scaled features of samples: summaries (B, 1 + S, D) and alone → (B, 5)."""
        outside = outside_of(seen[:, 0], self.centre, self.axes)
        return self._scaled(features(alone, outside, *roughness(seen[:, 1:], self.coarse)))

    def distance(self, rows: Tensor) -> Tensor:
        """Return how far single samples (n, 5) are from the middle of clean ones: (n,)."""
        return (rows @ self.given_own.whiten).square().sum(dim=1)

    def variance(self, rows: Tensor) -> Tensor:
        """Return how much samples (n, 5) differ from each other: ()."""
        return (rows @ self.given_own.whiten).var(dim=0).sum()

    def repeated(self, rows: Tensor) -> int:
        """Return how many of the last samples (n, 5) are alike; 0 if clean samples are, too."""
        if self.repeats or not len(rows):
            return 0
        alike = (rows - rows[-1]).abs().amax(dim=1) < STILL
        return int(alike.flip(0).long().cumprod(dim=0).sum())

    def evidence(
        self, rows: Tensor, own: Tensor, others: Mapping[str, Tensor], surprise: float
    ) -> Evidence:
        """Compare rows (n, 5) with what is expected of own and others' predictions (n, C)."""
        mix = agreed(list(others.values())) if others else own
        narrow = max(concentration(own), concentration(mix))
        found = self.given_own.compare(rows, own, narrow)
        from_own = found.distance(surprise)
        if not others:
            return Evidence(from_own, None, 0.0)
        group = tuple(others)
        known = group in self.groups  # how well it usually agrees with just these
        place = self.groups.index(group) if known else 0
        rows = self._with_agreement(rows, own, mix, place)
        found = self._given(place).compare(rows, mix, narrow)
        if found.vague >= UNKNOWN:
            return Evidence(from_own, None, 0.0)
        contradiction = found.contradiction(surprise) if known else 0.0
        return Evidence(from_own, found.distance(surprise), contradiction)

    def _scaled(self, found: Tensor) -> Tensor:
        return ((found - self.middle) / self.spread).clamp(-FURTHEST, FURTHEST)

    def _with_agreement(self, rows: Tensor, own: Tensor, mix: Tensor, place: int) -> Tensor:
        """Return rows (n, 5) with the agreement of two predictions (n, C): → (n, 6)."""
        usual, spread = self.agreement[:, place]
        return torch.cat([rows, (((own * mix).sum(dim=1) - usual) / spread)[:, None]], dim=1)

    def _given(self, place: int) -> "Expectation":
        found = self.given_others[place]
        assert isinstance(found, Expectation)
        return found


def features(alone: Fused, *others: Tensor) -> Tensor:
    """Return log ‖embedding‖, the entropy of the prediction, and others (B,): → (B, 2 + …)."""
    length = alone.embedding.norm(dim=1).clamp(min=1e-12).log()
    return torch.stack([_plain(length), _plain(entropy(alone.logits)), *others], dim=1)


def roughness(steps: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logarithm of the length of steps (B, S, D), and of that outside the axes: (B,)."""
    every = steps.square().sum(dim=(1, 2))
    fine = every - (steps @ coarse).square().sum(dim=(1, 2))
    return every.clamp(min=1e-12).log() / 2, fine.clamp(min=1e-12).log() / 2


def directions(tokens: Tensor, of: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the centre of mean tokens (n, D) and their main axes (D, K), K by `of` samples."""
    centre = tokens.mean(dim=0)
    kept = min(AXES, (of or len(tokens)) // 4, tokens.shape[1] // 2)
    return centre, torch.linalg.svd(tokens - centre, full_matrices=False).Vh[:kept].T.contiguous()


def products(steps: Tensor) -> Tensor:
    """Return the sum of s·sᵀ over all steps s of (n, S, D): → (D, D)."""
    rows = steps.flatten(0, 1)
    return rows.T @ rows


def main_axes(matrix: Tensor, kept: int) -> Tensor:
    """Return the eigenvectors (D, kept) with the largest eigenvalues of a symmetric matrix."""
    axes: Tensor = torch.linalg.eigh(matrix).eigenvectors
    return axes[:, -kept:].contiguous()


def outside_of(tokens: Tensor, centre: Tensor, axes: Tensor) -> Tensor:
    """Return the logarithm of the distance of (B, D) from the plane of the axes: → (B,)."""
    gap = tokens - centre
    return 0.5 * (gap.square().sum(dim=1) - (gap @ axes).square().sum(dim=1)).clamp(min=1e-12).log()


class Deviation(NamedTuple):
    """How the mean of a batch deviates from its expectation, in standard deviations."""

    size: Tensor  # (K,)
    unsure: Tensor  # (K,) variance of the expectation, in units of the noise
    varying: Tensor  # (5,) 0 for features that are the same for all clean samples, otherwise 1

    @property
    def vague(self) -> float:
        """The variance of the expectation, on average over the features that vary."""
        return float(self.unsure[:FEATURES] @ self.varying) / self._count

    @property
    def _count(self) -> int:
        return max(int(self.varying.sum()), 1)

    def distance(self, surprise: float) -> float:
        """Return the mean squared deviation of the features over its limit.

        Like Hotelling's statistic it follows an F distribution; its second number of degrees of
        freedom is a quarter of the number of clean samples that the expectation rests upon.
        `surprise` is the quantile of the normal distribution that clean batches exceed at the
        wanted rate.
        """
        found = float(self.size[:FEATURES].square().sum()) / self._count
        return found / f_quantile(self._count, 1 / (CAUTION * self.vague), surprise)

    def contradiction(self, surprise: float) -> float:
        """Return the same of the agreement, 0 if it is not less than expected."""
        found = float(self.size[FEATURES].clamp(max=0).square())
        return found / f_quantile(1, 1 / (CAUTION * float(self.unsure[FEATURES])), surprise)


class Expectation(nn.Module):
    """A regression of features on predicted classes: what to expect of a batch, and how surely.

    In its dual form, which is of the size of the clean samples however many classes there are.
    With power 0 it is linear in the predictions. Otherwise samples count as alike by
    (Σ_c √(p_c q_c))^power, so that what is typical of an ambiguous prediction is known, too. That
    is for predictions of others: given its own, a damaged modality would be expected to be as it
    is, as the entropy is a function of the prediction.

    The covariance of the clean samples' features is I + 1·1ᵀ + A·S, with S how much they are alike.
    It is kept as eigenvectors and eigenvalues of S, in whose coordinates all sums are taken. A
    sixth column, the agreement with others, is compared apart from the five features.
    """

    mix: Tensor  # (N, C) predicted distributions of clean samples
    basis: Tensor  # (N, N) eigenvectors of S
    eigenvalues: Tensor  # (N,) their eigenvalues
    whiten: Tensor  # (K, K) makes the noise of the features independent and of variance 1
    effect: Tensor  # (K,) variance A of the classes' effects, in units of the noise
    alpha: Tensor  # (K, N) inverse of the covariance · features, in coordinates of the basis
    noise: Tensor  # (C, K) variance of the noise by class, 1 on average
    untold: Tensor  # (K,) variance between classes that their predictions do not explain
    varying: Tensor  # (5,) 0 for features that are the same for all clean samples, otherwise 1

    def __init__(self, power: int) -> None:
        super().__init__()
        self.power = power
        empty_buffers(self, mix=2, basis=2, eigenvalues=1, whiten=2, effect=1, alpha=2, noise=2)
        empty_buffers(self, untold=1, varying=1)

    def alike(self, some: Tensor, others: Tensor) -> Tensor:
        """Return how much predictions (n, C) and (m, C) are alike: → (n, m), at most 1."""
        if self.power == 0:
            return some @ others.T
        return (some.sqrt() @ others.sqrt().T) ** self.power

    def fit(self, rows: Tensor, mix: Tensor, every: Tensor) -> None:
        """Learn from the features (N, K) of clean samples and their predictions (N, C).

        `every` are the predictions of all modalities together, the best guess of the classes.
        """
        values, self.basis = torch.linalg.eigh(self.alike(mix, mix))
        self.eigenvalues, ones = values.clamp(min=0), self.basis.sum(dim=0)
        noise = apart(rows.T.cov())
        for _ in range(3):  # which effects there are depends on the noise, and vice versa
            self.whiten = torch.linalg.cholesky(torch.linalg.inv(noise))
            white = rows @ self.whiten
            centred = self.basis.T @ (white - white.mean(dim=0))
            self.effect = torch.stack(
                [likeliest_effect(self.eigenvalues, own) for own in centred.T]
            )
            each, all_of = self._inverse(ones)
            along = (self.basis.T @ white).T
            self.alpha = each * along - each * ones * (along * all_of).sum(dim=1, keepdim=True)
            # What each sample deviates from the expectation of all others, relative to its noise.
            diagonal = self.basis.square() @ each.T
            diagonal = diagonal - (self.basis @ (each * ones).T) * (self.basis @ all_of.T)
            left = self.basis @ self.alpha.T / diagonal.sqrt()
            back = left @ torch.linalg.inv(self.whiten)
            noise = apart(back.T @ back / len(rows))
        self.varying = (rows.amax(dim=0) > rows.amin(dim=0))[:FEATURES].to(rows)
        self.noise = (USUAL + mix.T @ left.square()) / (USUAL + mix.sum(dim=0))[:, None]
        self.untold = shared_variance(left, every)
        self.mix = mix.clone()

    def compare(self, rows: Tensor, mix: Tensor, narrow: float) -> Deviation:
        """Compare the mean of rows (n, K) with what is expected of predictions (n, C).

        `narrow` is Σ_c q̄_c² of the classes of the batch: 1 if there is one, 1/C if there are all.
        """
        white, ones = rows @ self.whiten, self.basis.sum(dim=0)
        alike = self.alike(self.mix, mix).mean(dim=1) @ self.basis
        known = ones + self.effect[:, None] * alike  # (K, N)
        found = white.mean(dim=0) - (known * self.alpha).sum(dim=1)
        each, all_of = self._inverse(ones)
        explained = (each * known.square()).sum(dim=1)
        explained = explained - (each * ones * known).sum(dim=1) * (all_of * known).sum(dim=1)
        unsure = 1 + self.effect * self.alike(mix, mix).mean() - explained
        noise = (mix.mean(dim=0) @ self.noise).clamp(min=0.5)
        # A batch whose samples differ more than clean ones of these classes has a vaguer mean.
        seen = (white - white.mean(dim=0)).square().sum(dim=0)
        own = (ASSUMED * noise + seen) / (ASSUMED + len(rows) - 1)
        variance = noise.maximum(own) / len(rows) + noise * unsure + self.untold * narrow
        variance = variance + 1 / min(len(self.mix), OTHER_DAY)
        return Deviation(found / variance.sqrt(), unsure, self.varying)

    def _inverse(self, ones: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inverse covariance in coordinates of the basis, by Sherman and Morrison.

        It is diag(e) − (e ∘ u) gᵀ, with u = `ones`: returns e and g, (K, N) each.
        """
        each = 1 / (1 + self.effect[:, None] * self.eigenvalues)
        return each, each * ones / (1 + (each * ones.square()).sum(dim=1, keepdim=True))


def apart(noise: Tensor) -> Tensor:
    """Return a covariance (K, K) with a little more variance, and the agreement uncorrelated."""
    found = noise + LEAST * torch.eye(len(noise)).to(noise)
    found[FEATURES:, :FEATURES] = found[:FEATURES, FEATURES:] = 0
    return found


def shared_variance(left: Tensor, classes: Tensor) -> Tensor:
    """Return how much residuals (N, K) of samples of one class have in common: → (K,).

    With classes (N, C) as shares, E[r_i r_j] = V · Σ_c p_ic p_jc for i ≠ j; V by least squares.
    """
    alike = (classes @ classes.T).fill_diagonal_(0)
    products = torch.einsum("nk,nm,mk->k", left, alike, left)
    return (products / alike.square().sum().clamp(min=1e-12)).clamp(min=0)


def likeliest_effect(eigenvalues: Tensor, own: Tensor) -> Tensor:
    """Return the variance of class effects under which a feature is most likely: → ().

    The feature (N,) is in coordinates of the eigenvectors that have these eigenvalues.
    """
    choices = torch.tensor(EFFECTS, dtype=own.dtype)
    variances = 1 + choices[:, None] * eigenvalues
    return choices[(-variances.log() - own.square() / variances).sum(dim=1).argmax()]


def f_quantile(first: int, second: float, surprise: float) -> float:
    """Return the quantile of an F distribution at that of the normal distribution, `surprise`.

    Paulson's approximation: the cube root of F is nearly normal.
    """
    second = max(second, 4.0, surprise**2 / 2)
    a, b = 2 / (9 * first), 2 / (9 * second)
    p, q, r = (1 - b) ** 2 - surprise**2 * b, (1 - a) * (1 - b), (1 - a) ** 2 - surprise**2 * a
    return ((q + math.sqrt(q * q - p * r)) / p) ** 3


def sureness(score: float, clean: int) -> float:
    """Return the probability that a modality with this score is damaged.

    With fewer clean samples the limit is higher, so that a score tells more.
    """
    quarters = min(max(math.log(MOST / clean, 4), 0), 2)
    slope, offset = (most + quarters * more for most, more in zip(SURENESS, FEWER, strict=True))
    return 1 / (1 + math.exp(-min(max(slope * math.log(max(score, 1e-6)) + offset, -50), 50)))


class Diagnoser(nn.Module):
    """Diagnoses batch after batch, once it has been fitted; until then it flags nothing.

    If a batch has fewer than `queue` samples, earlier ones count too, but not those from before a
    change. A clean modality is flagged in about a share `false_alarms` of batches. All memory is in
    buffers, so resets and states cover it; it stays on the CPU, where its small algebra is done.
    """

    recent: Tensor  # (n, M, 2 + 5 + C) the last samples
    fitted: Tensor

    def __init__(self, names: Sequence[str], queue: int = 128, false_alarms: float = 0.01) -> None:
        super().__init__()
        self.names, self.queue, self.false_alarms = tuple(names), queue, false_alarms
        self.surprise = NormalDist().inv_cdf(1 - false_alarms)
        self.frozen = False  # whether earlier batches do not count for the present one
        self.clean = nn.ModuleDict({name: Clean(groups_without(name, names)) for name in names})
        self.register_buffer("recent", torch.zeros(0, 0, 0, dtype=torch.float64))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    @torch.no_grad()
    def fit(self, known: Mapping[str, Tensor], alone: Mapping[str, Fused]) -> None:
        """Learn from `summaries` {name: (n, 1 + S, D)} of clean samples and each modality alone."""
        count = len(next(iter(known.values())))
        if count < FEWEST:
            raise InputError(f"fit() got {count} clean samples: give 128, and at least {FEWEST}.")
        kept = torch.linspace(0, count - 1, min(count, MOST)).round().long()
        views = {n: Fused(f.embedding.cpu()[kept], f.logits.cpu()[kept]) for n, f in alone.items()}
        shares = {name: _plain(view.logits.softmax(dim=1)) for name, view in views.items()}
        every = together(list(shares.values()))
        for name, view in views.items():
            spread = float((view.embedding - view.embedding.mean(dim=0)).abs().max())
            if spread < 1e-6 * float(view.embedding.abs().max()):
                raise InputError(f"all clean samples of '{name}' are alike: give real ones.")
            self._of(name).fit(known[name][kept], view, shares, every, self.false_alarms)
        self.fitted.fill_(True)

    @torch.no_grad()
    def forward(
        self, tokens: Tokens, alone: Mapping[str, Fused], remember: bool, group: Ranks = ALONE
    ) -> Diagnosis:
        """Diagnose the modalities present; with `remember`, the batch counts for later ones."""
        if not self.fitted:
            nothing = dict.fromkeys(alone, 0.0)
            return Diagnosis(nothing, dict.fromkeys(alone, -1.0), frozenset())
        rows = group.gather(self._rows(summaries(tokens), alone))
        newest, seen = len(rows), rows
        if self.queue and not self.frozen:
            if self.recent.shape[1:] == rows.shape[1:]:
                seen = torch.cat([self.recent, rows])[-max(self.queue, newest) :]
            for name in alone:
                self._forget_before_change(name, seen[:, self.names.index(name)], newest)
            if remember:
                self.recent = seen[-self.queue :].clone()
        last = seen[-max(newest, 4 * RECENT) :]  # earlier ones may be from another condition
        names = [name for name in self.names if name in alone]
        mixed = self._is_mixed(names, last)
        scores = self._scores(names, seen, mixed)
        flagged = frozenset(name for name, score in scores.items() if score > 1)
        over = {name: score - 1 for name, score in scores.items()}
        sure = {name: sureness(score, self._of(name).count) for name, score in scores.items()}
        samples = self._samples(flagged, last, newest) if mixed else {}
        return Diagnosis(scores, over, flagged, sure, samples)

    def _rows(self, seen: Mapping[str, Tensor], alone: Mapping[str, Fused]) -> Tensor:
        """Return what is kept of each sample, zeros of a modality that is missing: → (B, M, K)."""
        size, classes = next(iter(alone.values())).logits.shape
        rows = torch.zeros(size, len(self.names), 2 + FEATURES + classes, dtype=torch.float64)
        for name, fused in alone.items():
            own = rows[:, self.names.index(name)]
            own[:, [THERE, COUNTS]] = 1
            own[:, SEEN] = self._of(name).look(seen[name], fused)
            own[:, SHARES] = _plain(fused.logits.softmax(dim=1))
        return rows

    def _scores(self, names: Sequence[str], seen: Tensor, mixed: bool) -> dict[str, float]:
        """Judge modalities together: above 1 is damage.

        If one contradicts the others, one of them is damaged. The one that contradicts most cannot
        speak for itself if there are two or more others. The most suspicious one, if it leads,
        needs less evidence. What is flagged no longer counts among the others. With two modalities,
        the other one then speaks for itself alone, and needs more evidence; not in a mixed batch,
        where each may be damaged in samples of its own.
        """
        found = {name: self._evidence(name, names, seen) for name in names}
        scores = {n: e.own if e.given is None else min(e.own, e.given) for n, e in found.items()}
        scores = {n: max(score, self._stuck(n, seen)) for n, score in scores.items()}
        if len(names) > 1:
            contrary = max(names, key=lambda name: found[name].contradiction)
            if len(names) > 2 and found[contrary].contradiction > 1:
                scores[contrary] = max(scores[contrary], found[contrary].given or 0.0)
            second, first = sorted(names, key=scores.__getitem__)[-2:]
            if scores[first] > LEAD * scores[second]:
                blame, most = BLAME
                scores[first] *= min(max(blame * found[first].contradiction, 1.0), most)
                if len(self.names) == 2 and scores[first] > 1 and not mixed:
                    scores[second] = max(scores[second], found[second].own) / UNAIDED
        worst = max(names, key=scores.__getitem__)
        if scores[worst] > 1 and len(names) > 2:
            scores |= self._scores([name for name in names if name != worst], seen, mixed)
        return scores

    def _evidence(self, name: str, names: Sequence[str], seen: Tensor) -> Evidence:
        """Return what speaks for damage of a modality, given others among those named."""
        place = self.names.index(name)
        seen = seen[seen[:, place, COUNTS] > 0]
        others = {
            other: seen[:, at, SHARES]
            for at, other in enumerate(self.names)
            if other != name and other in names and seen[:, at, THERE].all()
        }
        rows, own = seen[:, place, SEEN], seen[:, place, SHARES]
        return self._of(name).evidence(rows, own, others, self.surprise)

    def _stuck(self, name: str, seen: Tensor) -> float:
        """Return for how many of the last samples a modality repeats itself, in units of 8.

        Not if the others repeat themselves for as long: then it is the world that stands still.
        """
        found = {
            n: self._of(n).repeated(seen[:, place, SEEN])
            for place, n in enumerate(self.names)
            if seen[-1, place, THERE]
        }
        longest = max((count for n, count in found.items() if n != name), default=len(seen))
        return found[name] / RECENT if found[name] > longest else 0.0

    def _samples(
        self, flagged: frozenset[str], last: Tensor, newest: int
    ) -> dict[str, tuple[bool, ...]]:
        """Return which of the newest samples of a mixed batch are damaged.

        They are far from clean ones by themselves, and more like the other far ones than like the
        rest: healthy samples may be further away than those of `fit`.
        """
        found = {}
        for name in sorted(flagged):
            distance = self._of(name).distance(last[:, self.names.index(name), SEEN])
            far = distance > self._of(name).furthest
            if far.any() and not far.all():
                far &= distance > distance[~far].mean().lerp(distance[far].mean(), OUTLYING)
            found[name] = tuple(far[-newest:].tolist())
        return found

    def _is_mixed(self, names: Sequence[str], last: Tensor) -> bool:
        """Tell whether the last samples differ in what is damaged.

        Damage that is the same for all samples makes them more alike than clean ones; different
        damage side by side makes them less so. With three modalities this is not asked: there,
        damage that is the same for all samples is seen in some of them only.
        """
        return len(names) < 3 and self._wider(last) > WIDER

    def _wider(self, seen: Tensor) -> float:
        """Return how much more samples vary than clean ones, on average over modalities.

        n samples vary by 1 ± about √(1/n + 1/N) of the variance of N clean ones.
        """
        found = []
        for place, name in enumerate(self.names):
            clean, rows = self._of(name), seen[seen[:, place, COUNTS] > 0, place, SEEN]
            if len(rows) >= 2 * RECENT:
                chance = math.sqrt(1 / len(rows) + 1 / len(clean.given_own.mix))
                found.append((float(clean.variance(rows) / clean.usual) - 1) / chance)
        return sum(found) / max(len(found), 1)

    def _forget_before_change(self, name: str, rows: Tensor, newest: int) -> None:
        """Let rows (n, …) of a modality, in order of arrival, not count from before a change.

        The last `newest`, but at least 8, are compared with all before them.
        """
        places = rows[:, COUNTS].nonzero()[:, 0]
        newest = max(newest, RECENT)
        if len(places) <= newest:
            return
        last, before = rows[places[-newest:]], rows[places[:-newest]]
        gap = last[:, SEEN].mean(dim=0) - before[:, SEEN].mean(dim=0)
        white = gap @ self._of(name).given_own.whiten
        apart = float(white.square().mean()) / (1 / newest + 1 / len(before))
        if apart > f_quantile(FEATURES, MOST, self.surprise):
            rows[places[:-newest], COUNTS] = 0

    def _of(self, name: str) -> Clean:
        own = self.clean[name]
        assert isinstance(own, Clean)
        return own


def groups_without(name: str, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the others together, and of two others also each alone.

    Of more, those that are left without one are so nearly all that they need no expectation of
    their own.
    """
    others = tuple(other for other in names if other != name)
    if len(others) == 2:
        return [others, others[:1], others[1:]]
    return [others] if others else []


def concentration(mix: Tensor) -> float:
    """Return Σ_c q̄_c² of predictions (n, C): 1 if there is one class, 1/C if there are all."""
    return float(mix.mean(dim=0).square().sum())


def agreed(shares: Sequence[Tensor]) -> Tensor:
    """Return the normalised geometric mean of predictions (n, C)."""
    return _log_shares(shares).mean(dim=0).softmax(dim=1)


def together(shares: Sequence[Tensor]) -> Tensor:
    """Return the normalised product of predictions (n, C)."""
    return _log_shares(shares).sum(dim=0).softmax(dim=1)


def _log_shares(shares: Sequence[Tensor]) -> Tensor:
    return torch.stack([(own + 1e-6).log() for own in shares])
