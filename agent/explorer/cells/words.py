import re

WORD = re.compile(r"[^\W\d]\w*|\d+(?:[.:-]\d+)*")
STOP = set(
    re.findall(
        r"\S+",
        """a about after all also an and any are as at be been before but by can did do does each for
        from get gets had has have how if in into is it its kind many may much name named no not of
        on one or our out over per she so some such take takes than that the their them then there
        these they this to under until up use used uses using was we were what when where which
        while who whose why will with you""",
    )
)
IRREGULAR = dict(
    re.findall(
        r"(\w+):(\w+)",
        """wrote:write written:write built:build bought:buy left:leave sent:send held:hold kept:keep
        made:make lost:lose met:meet paid:pay sold:sell told:tell took:take taken:take gave:give
        given:give went:go gone:go came:come broke:break broken:break chose:choose chosen:choose
        drawn:draw drove:drive driven:drive fell:fall fallen:fall grew:grow grown:grow rose:rise
        saw:see seen:see spoke:speak threw:throw thrown:throw began:begin begun:begin ran:run
        caught:catch taught:teach thought:think brought:bring""",
    )
)
ENDS = {
    "ations": "",
    "ation": "",
    "ings": "",
    "ing": "",
    "ies": "y",
    "ied": "y",
    "ed": "",
    "es": "",
    "s": "",
    "ly": "",
}


def stem(word):
    """Cut a word down so that its forms meet: serviced, services and service are one."""
    word = IRREGULAR.get(word.lower(), word.lower())
    for end, put in ENDS.items():
        if word.endswith(end) and len(word) - len(end) >= 3 and not word.endswith("ss"):
            word = word[: -len(end)] + put
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


print("NEXT: analyse")
