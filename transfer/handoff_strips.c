/* Strips as the data path sees them: which to send next, where they lie, and their checksum. Pure
 * functions of their arguments; both ends use them. */
#include "transfer/handoff_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"

/* ---- sets ---- */

void strip_set_create(struct strip_set *set, uint32_t layers, uint32_t pages)
{
    set->words_per_layer = (pages + 63) / 64;
    set->words = calloc((size_t)layers * set->words_per_layer, sizeof *set->words);
    CHECK(set->words != NULL);
}

void strip_set_free(struct strip_set *set)
{
    free(set->words);
    *set = (struct strip_set){0};
}

void strip_set_clear(struct strip_set *set, uint32_t layers)
{
    memset(set->words, 0, (size_t)layers * set->words_per_layer * sizeof *set->words);
}

uint32_t strip_next(const struct strip_set *set, uint32_t layer, uint32_t page, uint32_t pages)
{
    while (page < pages) {
        const uint64_t word = *strip_word(set, layer, page) >> (page % 64);
        if (word != 0) {
            page += (uint32_t)__builtin_ctzll(word);
            return page < pages ? page : pages;
        }
        page = (page / 64 + 1) * 64;
    }
    return pages;
}

/* ---- which to send next ---- */

static bool may_go(const struct strip_view *view, uint32_t layer, uint32_t page)
{
    return page < view->pages && strip_has(view->ready, layer, page) &&
           view->granted_slots[page] != SLOT_NONE;
}

static bool breaks(const uint32_t *slots, uint32_t page)
{
    return slots[page] != slots[page - 1] + 1;
}

/* Pages from box->page on that follow each other without a gap at both ends. */
static uint32_t run_length(const struct strip_view *view, const struct strip_box *box,
                           uint32_t strips_most)
{
    uint32_t count = 1;
    for (uint32_t page = box->page + 1; count < strips_most && may_go(view, box->layer, page);
         page++, count++)
        if (breaks(view->source_slots, page) || breaks(view->granted_slots, page))
            break;
    return count;
}

/* The same with gaps; how many pieces it falls into at the end where they are more. */
static uint32_t gather_length(const struct strip_view *view, const struct strip_box *box,
                              uint32_t strips_most, uint32_t *pieces_out)
{
    uint32_t count = 1, source = 1, granted = 1;
    for (uint32_t page = box->page + 1; count < strips_most && may_go(view, box->layer, page);
         page++, count++) {
        const uint32_t more_source = source + breaks(view->source_slots, page);
        const uint32_t more_granted = granted + breaks(view->granted_slots, page);
        if (more_source > MOVER_SEGMENTS_MAX || more_granted > MOVER_SEGMENTS_MAX)
            break;
        source = more_source;
        granted = more_granted;
    }
    *pieces_out = source > granted ? source : granted;
    return count;
}

static bool layer_has(const struct strip_view *view, uint32_t layer, const struct strip_box *box)
{
    for (uint32_t i = 0; i < box->page_count; i++)
        if (!strip_has(view->ready, layer, box->page + i))
            return false;
    return true;
}

static void box_grow(const struct strip_view *view, const struct strip_room *room,
                     struct strip_box *box)
{
    const uint32_t run = run_length(view, box, room->strips_most);
    box->page_count = run;
    if (run >= room->run_strips || run >= room->gather_strips)
        return;
    uint32_t pieces;
    box->page_count = gather_length(view, box, room->gather_strips, &pieces);
    while (box->layer + box->layer_count < view->layers &&
           (box->layer_count + 1) * box->page_count <= room->gather_strips &&
           (box->layer_count + 1) * pieces <= MOVER_SEGMENTS_MAX &&
           layer_has(view, box->layer + box->layer_count, box))
        box->layer_count++;
}

bool strip_pick(const struct strip_view *view, const struct strip_room *room, uint32_t first_layer,
                struct strip_box *out)
{
    for (uint32_t i = 0; i < view->layers; i++) {
        const uint32_t layer = (first_layer + i) % view->layers;
        if (view->ready_counts[layer] == 0)
            continue;
        uint32_t page = strip_next(view->ready, layer, 0, view->pages);
        while (page < view->pages && view->granted_slots[page] == SLOT_NONE)
            page = strip_next(view->ready, layer, page + 1, view->pages);
        if (page == view->pages)
            continue;
        *out = (struct strip_box){.layer = layer, .layer_count = 1, .page = page};
        box_grow(view, room, out);
        return true;
    }
    return false;
}

/* ---- where they lie, what they are ---- */

static uint8_t *strip_at(const struct handoff_region *region, uint32_t layer, uint32_t slot)
{
    return region->base + ((size_t)layer * region->slots + slot) * region->strip_bytes;
}

uint32_t strip_segments(const struct handoff_region *region, const struct strip_box *box,
                        const uint32_t *slots, struct mover_segment out[MOVER_SEGMENTS_MAX])
{
    uint32_t count = 0;
    for (uint32_t layer = 0; layer < box->layer_count; layer++) {
        for (uint32_t page = box->page; page < box->page + box->page_count; page++) {
            if (page > box->page && !breaks(slots, page)) {
                out[count - 1].bytes += region->strip_bytes;
                continue;
            }
            if (count == MOVER_SEGMENTS_MAX)
                return 0;
            out[count++] = (struct mover_segment){strip_at(region, box->layer + layer, slots[page]),
                                                  region->strip_bytes};
        }
    }
    return count;
}

uint32_t strip_grant(const uint32_t *slots, const uint32_t *generations, uint32_t count)
{
    uint32_t crc = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t bytes[8];
        store_le32(bytes, slots[i]);
        store_le32(bytes + 4, generations[i]);
        crc = crc32c(crc, bytes, sizeof bytes);
    }
    return crc;
}

uint32_t strip_checksum(const struct handoff_region *region, const struct strip_identity *identity,
                        const struct strip_box *box, const uint32_t *slots)
{
    uint32_t crc = 0;
    for (uint32_t layer = box->layer; layer < box->layer + box->layer_count; layer++) {
        for (uint32_t page = box->page; page < box->page + box->page_count; page++) {
            uint8_t what[20];
            store_le64(what, identity->handoff);
            store_le32(what + 8, layer);
            store_le32(what + 12, identity->first_page + page);
            store_le32(what + 16, identity->generations[page]);
            crc = crc32c(crc, what, sizeof what);
            crc = crc32c(crc, strip_at(region, layer, slots[page]), region->strip_bytes);
        }
    }
    return crc;
}

uint64_t strip_digest(const struct mover_data_header *header)
{
    uint8_t bytes[MOVER_HEADER_BYTES];
    mover_header_write(header, bytes);
    return hash64(bytes, sizeof bytes, 0);
}
