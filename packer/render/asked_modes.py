"""Which modes of a template a reasoned answer may be trained in: none in which it is asked for an answer without."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

from packer.render.environment import ChatTemplate, RenderError
from packer.render.reasoning import goes_on

CONTRADICTS = "its reasoning contradicts"
"""In the reason of a rejection: variables of the row or the recipe contradict an answer."""

SEVERAL_EFFORTS = "it has reasoning, for which the template is asked in several ways"

Mode: TypeAlias = Mapping[str, Any]


class Attempt(NamedTuple):
    """Prompt and turn as rendered in one mode."""

    prompt: str
    whole: str
    mode: Mode
    fits: bool
    """Whether the turn continues the prompt."""

    is_open: bool
    """Whether the turn begins with a prompt that opens the reasoning, and goes on as if it did not."""

    @classmethod
    def of(cls, prompt: str, whole: str, mode: Mode, *, is_reasoned: bool = True) -> Self:
        begins = whole.startswith(prompt)
        fits = begins and goes_on(prompt, whole[len(prompt) :], is_reasoned=is_reasoned)
        return cls(prompt, whole, mode, fits, begins and not fits)

    @property
    def turn_length(self) -> int:
        """Length of the turn after the prompt, in characters."""
        return len(self.whole) - len(self.prompt)


def modes_of(template: ChatTemplate, kwargs: Mapping[str, Any]) -> tuple[Mode, ...]:
    """Return the modes of a template under variables: the default alone if they set a switch.

    Switches may be names of one thing: DeepSeek's templates read `thinking` and `enable_thinking`.
    """
    if kwargs and not kwargs.keys().isdisjoint(template.switches.names):
        return ({},)
    return ({}, *({name: value} for name, value in template.switches.modes))


def asking_modes(template: ChatTemplate, kwargs: Mapping[str, Any], modes: Sequence[Mode], k: int) -> Sequence[Mode]:
    """Return the modes of reasoned message k, also those that only a word for the effort selects."""
    switches = template.switches
    if not switches.none:
        return modes
    asking = [{name: word} for name, word in switches.asking if name not in kwargs]
    left = [mode for mode in (*modes, *asking) if not switches.refusing({**kwargs, **mode})]
    if not left:
        raise contradiction(k, str(switches.refusing(kwargs)))
    return left


def refuse_several_efforts(template: ChatTemplate, prompts: Sequence[tuple[str, Mode]], chosen: Mode, k: int) -> None:
    """Refuse a reasoned answer for which the template has to be asked, and can be asked in more than one way."""
    words = {
        setting: prompt for prompt, mode in prompts for setting in mode.items() if setting in template.switches.asking
    }
    if len({*words.values()}) > 1 and any(setting in [*words] for setting in chosen.items()):
        ways = " or ".join(f"{name}={word}" for name, word in template.switches.asking)
        reason = f"messages[{k}]: {SEVERAL_EFFORTS}: {ways}"
        raise RenderError(reason, code="prompt_diverges", message=k)


def contradiction(k: int, refusing: str) -> RenderError:
    """Return the rejection of a reasoned answer under variables that ask for an answer without reasoning."""
    return RenderError(f"messages[{k}]: {CONTRADICTS} {refusing}", code="prompt_diverges", message=k)


def divergence(k: int, *, is_open: bool) -> RenderError:
    """Return the rejection of an answer that continues no prompt; `is_open`: it goes on as if none opened reasoning."""
    how = "does not begin this turn with its own prompt"
    if is_open:
        how = "does not close the reasoning that this turn's prompt opens, or opens it once more"
    return RenderError(f"messages[{k}]: the template {how}", code="prompt_diverges", message=k)
