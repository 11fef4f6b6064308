// Small folders of images for tests.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_TESTING_STRIPED_IMAGES_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_TESTING_STRIPED_IMAGES_H_

#include <string>

namespace lockstep::examples::testing {

// Writes two classes of `images` JPEGs each into `folder`: stripes that lie, and stripes that stand.
void WriteStripedImages(const std::string& folder, int images);

}  // namespace lockstep::examples::testing

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_TESTING_STRIPED_IMAGES_H_
