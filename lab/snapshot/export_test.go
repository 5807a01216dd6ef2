package snapshot

// ManyLayers is how many layers make a disk be flattened.
const ManyLayers = manyLayers
