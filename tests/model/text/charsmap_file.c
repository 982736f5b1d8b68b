#include "tests/model/text/charsmap_file.h"

#include "base/check.h"

enum { VALUE = 1 << 8 };

/* The array as it is being filled: which units are taken, and which are the base of a node. No two
 * nodes may have one base, or they would have each other's children. */
struct trie {
    uint32_t units[CHARSMAP_FILE_UNITS];
    bool used[CHARSMAP_FILE_UNITS], based[CHARSMAP_FILE_UNITS];
};

/* Pairs whose beginnings lead to a node. */
struct node {
    const struct charsmap_pair *pairs;
    const uint32_t *places; /* of their replacements */
    size_t count, depth;
};

static bool belongs(const struct node *node, size_t i, const char *prefix)
{
    return strncmp(node->pairs[i].from, prefix, node->depth) == 0;
}

static void labels_find(const struct node *node, const char *prefix, bool labels[256])
{
    memset(labels, 0, 256 * sizeof *labels);
    for (size_t i = 0; i < node->count; i++)
        if (belongs(node, i, prefix))
            labels[(uint8_t)node->pairs[i].from[node->depth]] = true; // 0: it ends here
}

static size_t base_find(const struct trie *trie, const bool labels[256])
{
    for (size_t base = 1; base < CHARSMAP_FILE_UNITS; base++) {
        bool fits = !trie->based[base];
        for (size_t label = 0; label < 256 && fits; label++)
            fits = !labels[label] || !trie->used[base ^ label];
        if (fits)
            return base;
    }
    CHECK(!"the trie is full");
    return 0;
}

static void node_place(struct trie *trie, struct node node, const char *prefix, size_t at)
{
    bool labels[256];
    labels_find(&node, prefix, labels);
    const size_t base = base_find(trie, labels);
    trie->based[base] = true;
    trie->units[at] |= (uint32_t)(base ^ at) << 10 | (labels[0] ? (uint32_t)VALUE : 0);
    for (size_t label = 0; label < 256; label++) {
        trie->used[base ^ label] |= labels[label];
        if (labels[label])
            trie->units[base ^ label] = (uint32_t)label;
    }
    for (size_t i = 0; i < node.count; i++)
        if (labels[0] && belongs(&node, i, prefix) && node.pairs[i].from[node.depth] == '\0')
            trie->units[base] = 1u << 31 | node.places[i];
    for (size_t label = 1; label < 256; label++) {
        char longer[16];
        if (!labels[label])
            continue;
        CHECK(node.depth + 2 < sizeof longer);
        memcpy(longer, prefix, node.depth);
        longer[node.depth] = (char)label;
        longer[node.depth + 1] = '\0';
        struct node child = node;
        child.depth++;
        node_place(trie, child, longer, base ^ label);
    }
}

void charsmap_file_make(const struct charsmap_pair *pairs, struct buffer *out)
{
    static struct trie trie;
    uint32_t places[64];
    struct buffer texts = {0};
    struct node root = {.pairs = pairs, .places = places};
    for (; pairs[root.count].from != NULL; root.count++) {
        CHECK(root.count < ARRAY_COUNT(places));
        places[root.count] = (uint32_t)texts.size;
        buffer_add(&texts, pairs[root.count].to, strlen(pairs[root.count].to) + 1);
    }
    trie = (struct trie){.used = {true}};
    node_place(&trie, root, "", 0);
    for (size_t i = 0; i < CHARSMAP_FILE_UNITS; i++)
        if (!trie.used[i])
            trie.units[i] = 1u << 31; // no byte leads to it
    uint8_t bytes[4];
    store_le32(bytes, CHARSMAP_FILE_UNITS * 4);
    buffer_add(out, bytes, sizeof bytes);
    for (size_t i = 0; i < CHARSMAP_FILE_UNITS; i++) {
        store_le32(bytes, trie.units[i]);
        buffer_add(out, bytes, sizeof bytes);
    }
    buffer_add(out, texts.data, texts.size);
    buffer_free(&texts);
}

void charsmap_file_base64(const void *bytes, size_t count, struct buffer *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *in = bytes;
    for (size_t at = 0; at < count; at += 3) {
        const size_t left = count - at < 3 ? count - at : 3;
        uint32_t bits = (uint32_t)in[at] << 16;
        bits |= left > 1 ? (uint32_t)in[at + 1] << 8 : 0;
        bits |= left > 2 ? in[at + 2] : 0;
        for (size_t i = 0; i < 4; i++)
            buffer_add_char(out, i <= left ? digits[bits >> (18 - 6 * i) & 63] : '=');
    }
}
