"""Diagnosis: tell which modalities are damaged by comparing each with itself when clean.

Each sample of a modality has four *features*: the length of its embedding, the entropy of its
prediction, how far its mean token lies outside the directions in which clean ones vary, and how
much neighbouring tokens differ. Their mean over a batch depends on the classes in the batch, so it
is not compared with the mean of all clean samples but with what a regression, learned from clean
samples, expects of *these* classes:

    feature = intercept + Σ_c p_c · effect_c + noise,    effect_c ~ N(0, A),

where p is a predicted distribution over classes. The distance between mean and expectation is
relative to its uncertainty. That includes the uncertainty of the effects, and what p does not tell
about a class: a batch of few classes must be further away than one of all. This is done twice, with
p from the modality itself and from the others. A damaged modality deviates from both; a healthy one
whose partner is damaged agrees with its own p. So the smaller distance counts.

docs/diagnosis.md has the equations, the choices and the figures.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import torch
from torch import Tensor, nn

from dasp.core.errors import InputError
from dasp.core.types import Diagnosis, Fused, Tokens
from dasp.methods.distributed import ALONE, Ranks
from dasp.methods.losses import entropy

FEATURES = 4
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
CAUTION = 2  # clean samples that count as one degree of freedom: classes differ in more than means
UNKNOWN = 1 / 8  # variance of an expectation, in units of the noise, from which it does not count
ASSUMED = 16.0  # samples that the noise of clean samples counts for in the noise of a batch
RECENT = 8  # samples that are enough to see that the stream has changed
WIDER = 1.3  # by how much more than chance samples must vary if not all have the same damage
OUTLYING = 2 / 3  # of the way from the rest to the far ones: what is beyond it is damaged
SURENESS = 4.0, 1.0  # slope and offset of the log-odds of damage, by the logarithm of the score


def summaries(tokens: Tokens) -> dict[str, Tensor]:
    """Return mean token and roughness of each sample, in float64 on the CPU: → (B, D + 1).

    Roughness is the logarithm of the root mean square difference between consecutive tokens
    (B, N, D), 0 if there is one token only.
    """
    found = {}
    for name, value in tokens.items():
        own = value.float()
        rough = own.new_zeros(len(own))
        if own.shape[1] > 1:
            rough = own.diff(dim=1).square().mean(dim=(1, 2)).clamp(min=1e-12).log() / 2
        found[name] = _plain(torch.cat([own.mean(dim=1), rough[:, None]], dim=1))
    return found


def empty_buffers(module: nn.Module, **dimensions: int) -> None:
    """Register float64 buffers without elements, which `fit` replaces."""
    for name, count in dimensions.items():
        module.register_buffer(name, torch.zeros([0] * count, dtype=torch.float64))


def _plain(values: Tensor) -> Tensor:
    return values.detach().to("cpu", torch.float64)


class Clean(nn.Module):
    """The features of clean samples of one modality, and what to expect for a mix of classes."""

    centre: Tensor  # (D,) mean of the mean tokens
    axes: Tensor  # (D, K) directions in which they vary most
    middle: Tensor  # (4,) median of the features
    spread: Tensor  # (4,)
    furthest: Tensor  # () distance that few single samples exceed
    usual: Tensor  # () variance of clean samples, see `variance`

    def __init__(self) -> None:
        super().__init__()
        empty_buffers(self, centre=1, axes=2, middle=1, spread=1, furthest=0, usual=0)
        self.given_own, self.given_others = Expectation(power=0), Expectation(power=4)

    def fit(
        self, known: Tensor, alone: Fused, others: Tensor | None, every: Tensor, false_alarms: float
    ) -> None:
        """Learn from summaries (n, D + 1), the modality alone, and predictions (n, C).

        Those are of the other modalities and of all of them.
        """
        tokens = known[:, :-1]
        self.centre, self.axes = directions(tokens)
        folds = min(FOLDS, len(tokens))
        fold = torch.arange(len(tokens)) % folds
        outside = torch.empty(len(tokens), dtype=torch.float64)
        for part in range(folds):  # samples lie nearer to directions found in themselves
            held = fold == part
            outside[held] = outside_of(tokens[held], *directions(tokens[~held], len(tokens)))
        found = features(alone, outside, known[:, -1])
        low, self.middle, high = found.quantile(_plain(torch.tensor([0.16, 0.5, 0.84])), dim=0)
        self.spread = ((high - low) / 2).clamp(min=1e-4)
        rows = self._scaled(found)
        self.given_own.fit(rows, _plain(alone.logits.softmax(dim=1)), every)
        self.furthest = self.distance(rows).quantile(1 - false_alarms)
        self.usual = self.variance(rows)
        if others is not None:
            self.given_others.fit(rows, others, every)

    def look(self, seen: Tensor, alone: Fused) -> Tensor:
        """Return the scaled features of samples: summaries (B, D + 1) and alone → (B, 4)."""
        outside = outside_of(seen[:, :-1], self.centre, self.axes)
        return self._scaled(features(alone, outside, seen[:, -1]))

    def distance(self, rows: Tensor) -> Tensor:
        """Return how far single samples (n, 4) are from the middle of clean ones: (n,)."""
        return (rows @ self.given_own.whiten).square().sum(dim=1)

    def variance(self, rows: Tensor) -> Tensor:
        """Return how much samples (n, 4) differ from each other: ()."""
        return (rows @ self.given_own.whiten).var(dim=0).sum()

    def score(self, rows: Tensor, own: Tensor, others: Tensor | None, surprise: float) -> float:
        """Return the distance of rows (n, 4) from clean over its limit: above 1 is damage."""
        mixes = [own] if others is None else [own, others]
        narrow = max(float(mix.mean(dim=0).square().sum()) for mix in mixes)
        found, _ = self.given_own.score(rows, own, narrow, surprise)
        if others is None:
            return found
        given_others, unsure = self.given_others.score(rows, others, narrow, surprise)
        return min(found, given_others) if unsure < UNKNOWN else found

    def _scaled(self, found: Tensor) -> Tensor:
        return ((found - self.middle) / self.spread).clamp(-FURTHEST, FURTHEST)


def features(alone: Fused, outside: Tensor, rough: Tensor) -> Tensor:
    """Return log ‖embedding‖, entropy of the prediction, `outside`, `rough`: (B,) each → (B, 4)."""
    length = alone.embedding.norm(dim=1).clamp(min=1e-12).log()
    return torch.stack([_plain(length), _plain(entropy(alone.logits)), outside, rough], dim=1)


def directions(tokens: Tensor, of: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the centre of mean tokens (n, D) and their main axes (D, K), K by `of` samples."""
    centre = tokens.mean(dim=0)
    kept = min(AXES, (of or len(tokens)) // 4, tokens.shape[1] // 2)
    return centre, torch.linalg.svd(tokens - centre, full_matrices=False).Vh[:kept].T.contiguous()


def outside_of(tokens: Tensor, centre: Tensor, axes: Tensor) -> Tensor:
    """Return the logarithm of the distance of (B, D) from the plane of the axes: → (B,)."""
    gap = tokens - centre
    return 0.5 * (gap.square().sum(dim=1) - (gap @ axes).square().sum(dim=1)).clamp(min=1e-12).log()


class Expectation(nn.Module):
    """A regression of features on predicted classes: what to expect of a batch, and how surely.

    In its dual form, which is of the size of the clean samples however many classes there are.
    With power 0 it is linear in the predictions. Otherwise samples count as alike by
    (Σ_c √(p_c q_c))^power, so that what is typical of an ambiguous prediction is known, too. That
    is for predictions of others: given its own, a damaged modality would be expected to be as it
    is, as the entropy is a function of the prediction.
    """

    mix: Tensor  # (N, C) predicted distributions of clean samples
    whiten: Tensor  # (4, 4) makes the noise of the features independent and of variance 1
    effect: Tensor  # (4,) variance A of the classes' effects, in units of the noise
    inverse: Tensor  # (4, N, N) of the covariance of the clean samples' features
    alpha: Tensor  # (N, 4) inverse · features
    noise: Tensor  # (C, 4) variance of the noise by class, 1 on average
    untold: Tensor  # (4,) variance between classes that their predictions do not explain
    varying: Tensor  # () number of features that are not the same for all clean samples

    def __init__(self, power: int) -> None:
        super().__init__()
        self.power = power
        empty_buffers(self, mix=2, whiten=2, effect=1, inverse=3, alpha=2, noise=2, untold=1)
        empty_buffers(self, varying=0)

    def alike(self, some: Tensor, others: Tensor) -> Tensor:
        """Return how much predictions (n, C) and (m, C) are alike: → (n, m), at most 1."""
        if self.power == 0:
            return some @ others.T
        return (some.sqrt() @ others.sqrt().T) ** self.power

    def fit(self, rows: Tensor, mix: Tensor, every: Tensor) -> None:
        """Learn from the features (N, 4) of clean samples and their predictions (N, C).

        `every` are the predictions of all modalities together, the best guess of the classes.
        """
        alike = self.alike(mix, mix)
        noise = rows.T.cov() + LEAST * torch.eye(FEATURES).to(rows)
        for _ in range(3):  # which effects there are depends on the noise, and vice versa
            self.whiten = torch.linalg.cholesky(torch.linalg.inv(noise))
            white = rows @ self.whiten
            self.effect = torch.stack([likeliest_effect(alike, own) for own in white.T])
            within = torch.eye(len(rows)).to(rows)
            self.inverse = torch.linalg.inv(within + 1 + self.effect[:, None, None] * alike)
            self.alpha = torch.einsum("jnm,mj->nj", self.inverse, white)
            # What each sample deviates from the expectation of all others, relative to its noise.
            left = self.alpha / self.inverse.diagonal(dim1=1, dim2=2).T.sqrt()
            back = left @ torch.linalg.inv(self.whiten)
            noise = back.T @ back / len(rows) + LEAST * torch.eye(FEATURES).to(rows)
        self.varying = (rows.amax(dim=0) > rows.amin(dim=0)).sum().to(rows).clamp(min=1)
        self.noise = (USUAL + mix.T @ left.square()) / (USUAL + mix.sum(dim=0))[:, None]
        self.untold = shared_variance(left, every)
        self.mix = mix.clone()

    def score(
        self, rows: Tensor, mix: Tensor, narrow: float, surprise: float
    ) -> tuple[float, float]:
        """Return the squared distance of the mean of rows (n, 4) from expectation over its limit.

        And the variance of that expectation, in units of the noise.
        `narrow` is Σ_c q̄_c² of the classes of the batch: 1 if there is one, 1/C if there are all.
        Like Hotelling's statistic it follows an F distribution; its second number of degrees of
        freedom is half of the number of clean samples that the expectation rests upon. `surprise`
        is the quantile of the normal distribution that clean batches exceed at the wanted rate.
        """
        white, alike = rows @ self.whiten, self.alike(self.mix, mix).mean(dim=1)
        found = white.mean(dim=0) - self.effect * (alike @ self.alpha) - self.alpha.sum(dim=0)
        known = 1 + self.effect[:, None] * alike  # (4, N)
        prior = 1 + self.effect * self.alike(mix, mix).mean()
        unsure = prior - torch.einsum("jn,jnm,jm->j", known, self.inverse, known)
        noise = (mix.mean(dim=0) @ self.noise).clamp(min=0.5)
        # A batch whose samples differ more than clean ones of these classes has a vaguer mean.
        seen = (white - white.mean(dim=0)).square().sum(dim=0)
        own = (ASSUMED * noise + seen) / (ASSUMED + len(rows) - 1)
        variance = noise.maximum(own) / len(rows) + noise * unsure + self.untold * narrow
        variance = variance + 1 / min(len(self.mix), OTHER_DAY)
        distance = (found.square() / variance).sum() / self.varying
        vague = float(unsure.mean())
        limit = f_quantile(int(self.varying), 1 / (CAUTION * vague), surprise)
        return float(distance) / limit, vague


def shared_variance(left: Tensor, classes: Tensor) -> Tensor:
    """Return how much residuals (N, K) of samples of one class have in common: → (K,).

    With classes (N, C) as shares, E[r_i r_j] = V · Σ_c p_ic p_jc for i ≠ j; V by least squares.
    """
    alike = (classes @ classes.T).fill_diagonal_(0)
    products = torch.einsum("nk,nm,mk->k", left, alike, left)
    return (products / alike.square().sum().clamp(min=1e-12)).clamp(min=0)


def likeliest_effect(alike: Tensor, own: Tensor) -> Tensor:
    """Return the variance of class effects under which a feature (N,) is most likely: → ()."""
    power, basis = torch.linalg.eigh(alike)
    along = (basis.T @ (own - own.mean())).square()
    choices = torch.tensor(EFFECTS, dtype=alike.dtype)
    variances = 1 + choices[:, None] * power.clamp(min=0)
    return choices[(-variances.log() - along / variances).sum(dim=1).argmax()]


def f_quantile(first: int, second: float, surprise: float) -> float:
    """Return the quantile of an F distribution at that of the normal distribution, `surprise`.

    Paulson's approximation: the cube root of F is nearly normal.
    """
    second = max(second, 4.0, surprise**2 / 2)
    a, b = 2 / (9 * first), 2 / (9 * second)
    p, q, r = (1 - b) ** 2 - surprise**2 * b, (1 - a) * (1 - b), (1 - a) ** 2 - surprise**2 * a
    return ((q + math.sqrt(q * q - p * r)) / p) ** 3


def sureness(score: float) -> float:
    """Return the probability that a modality with this score is damaged."""
    slope, offset = SURENESS
    return 1 / (1 + math.exp(-min(max(slope * math.log(max(score, 1e-6)) + offset, -50), 50)))


class Diagnoser(nn.Module):
    """Diagnoses batch after batch, once it has been fitted; until then it flags nothing.

    If a batch has fewer than `queue` samples, earlier ones count too, but not those from before a
    change. A clean modality is flagged in about a share `false_alarms` of batches. All memory is in
    buffers, so resets and states cover it; it stays on the CPU, where its small algebra is done.
    """

    recent: Tensor  # (n, M, 2 + 4 + C) the last samples
    fitted: Tensor

    def __init__(self, names: Sequence[str], queue: int = 128, false_alarms: float = 0.01) -> None:
        super().__init__()
        self.names, self.queue, self.false_alarms = tuple(names), queue, false_alarms
        self.surprise = NormalDist().inv_cdf(1 - false_alarms)
        self.frozen = False  # whether earlier batches do not count for the present one
        self.clean = nn.ModuleDict({name: Clean() for name in names})
        self.register_buffer("recent", torch.zeros(0, 0, 0, dtype=torch.float64))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    @torch.no_grad()
    def fit(self, known: Mapping[str, Tensor], alone: Mapping[str, Fused]) -> None:
        """Learn from `summaries` {name: (n, D + 1)} of clean samples and each modality alone."""
        count = len(next(iter(known.values())))
        if count < FEWEST:
            raise InputError(f"fit() got {count} clean samples, which is too few: give 32.")
        kept = torch.linspace(0, count - 1, min(count, MOST)).round().long()
        views = {n: Fused(f.embedding.cpu()[kept], f.logits.cpu()[kept]) for n, f in alone.items()}
        shares = {name: _plain(view.logits.softmax(dim=1)) for name, view in views.items()}
        every = together(list(shares.values()))
        for name, view in views.items():
            spread = float((view.embedding - view.embedding.mean(dim=0)).abs().max())
            if spread < 1e-6 * float(view.embedding.abs().max()):
                raise InputError(f"all clean samples of '{name}' are alike: give real ones.")
            others = agreed([own for other, own in shares.items() if other != name])
            self._of(name).fit(known[name][kept], view, others, every, self.false_alarms)
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
        scores = {name: self._score(name, seen) for name in alone}
        flagged = frozenset(name for name, score in scores.items() if score > 1)
        over = {name: score - 1 for name, score in scores.items()}
        sure = {name: sureness(score) for name, score in scores.items()}
        mixed = self._samples(flagged, seen, newest) if len(alone) < 3 else {}
        return Diagnosis(scores, over, flagged, sure, mixed)

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

    def _score(self, name: str, seen: Tensor) -> float:
        place = self.names.index(name)
        seen = seen[seen[:, place, COUNTS] > 0]
        there = [p for p in range(len(self.names)) if p != place and seen[:, p, THERE].all()]
        others = agreed([seen[:, p, SHARES] for p in there])
        rows, own = seen[:, place, SEEN], seen[:, place, SHARES]
        return self._of(name).score(rows, own, others, self.surprise)

    def _samples(
        self, flagged: frozenset[str], seen: Tensor, newest: int
    ) -> dict[str, tuple[bool, ...]]:
        """Return which of the newest samples are damaged; {} if that is the same for all of them.

        Damage that is the same for all samples makes them more alike than clean ones; different
        damage side by side makes them less so. Damaged are those that are far from clean ones by
        themselves, and more like the other far ones than like the rest: healthy samples may be
        further away than those of `fit`. With three modalities this is not asked: there, damage
        that is the same for all samples is seen in some of them only.
        """
        last = seen[-max(newest, 4 * RECENT) :]  # earlier ones may be from another condition
        if not flagged or self._wider(last) <= WIDER:
            return {}
        found = {}
        for name in sorted(flagged):
            distance = self._of(name).distance(last[:, self.names.index(name), SEEN])
            far = distance > self._of(name).furthest
            if far.any() and not far.all():
                far &= distance > distance[~far].mean().lerp(distance[far].mean(), OUTLYING)
            found[name] = tuple(far[-newest:].tolist())
        return found

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


def agreed(shares: Sequence[Tensor]) -> Tensor | None:
    """Return the normalised geometric mean of predictions (n, C); None of none."""
    return _log_shares(shares).mean(dim=0).softmax(dim=1) if shares else None


def together(shares: Sequence[Tensor]) -> Tensor:
    """Return the normalised product of predictions (n, C)."""
    return _log_shares(shares).sum(dim=0).softmax(dim=1)


def _log_shares(shares: Sequence[Tensor]) -> Tensor:
    return torch.stack([(own + 1e-6).log() for own in shares])
