import math
from collections import Counter


def count_terms():
    """One pass over everything: how often each term of each question stands in each document."""
    wanted = {term for parts in asked.values() for term in parts["terms"]}
    wanted |= {bit for parts in asked.values() for name in parts["names"] for bit in name.split(".")}
    known, counts = {}, {}
    for name in texts:
        seen = counts[name] = Counter()
        for chunk in context[name].chunks(chars=1 << 22):
            for word, times in Counter(WORD.findall(chunk.text)).items():
                if word not in known:
                    known[word] = [term for term in {word: 1, stem(word): 1} if term in wanted]
                for term in known[word]:
                    seen[term] += times
        for word in WORD.findall(name.replace("_", " ")):  # a document's name speaks for it too
            for term in {word: 1, stem(word): 1}:
                seen[term] += 2 * (term in wanted)
    return counts


def rank(parts, counts, keep=12):
    """Order documents by BM25 over the question's terms, identifiers counting double; tests come last."""
    mean = sum(context[name].size for name in texts) / max(1, len(texts))
    scores = {}
    for doc in texts:
        score, seen = 4.0 * path_fit(doc, parts["names"]), counts[doc]
        for term in parts["terms"] + 2 * [bit for name in parts["names"] for bit in name.split(".")]:
            times = seen[term]
            score += idf[term] * times * 2.2 / (times + 0.3 + 0.9 * context[doc].size / mean) if times else 0
        scores[doc] = score * (0.3 if is_test(doc) else 1)
    best = sorted(scores, key=lambda name: (-scores[name], name))[:keep]
    return [name for name in best if scores[name] > 0]


counts = count_terms()
bits = [bit for parts in asked.values() for name in parts["names"] for bit in name.split(".")]
holders = {bit: [doc for doc in texts if counts[doc][bit]] for bit in dict.fromkeys(bits)}  # where it occurs
found_in = Counter(term for seen in counts.values() for term, times in seen.items() if times)
terms = dict.fromkeys(bits + [term for parts in asked.values() for term in parts["terms"]])
idf = {term: math.log(1 + len(texts) / (max(1, found_in[term]) + 0.5)) for term in terms}
ranked = {number: rank(parts, counts) for number, parts in asked.items()}
regions = {}  # documents are read as a whole
del counts
for number, names in ranked.items():
    print(number, names[:4])
print("NEXT: code")
