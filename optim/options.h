// The options and the state that all optimizers of this folder share.

#ifndef LOCKSTEP_OPTIM_OPTIONS_H_
#define LOCKSTEP_OPTIM_OPTIONS_H_

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/optim/number.h"

namespace lockstep::optim {

// Reads or sets options, each with its key in Python's param_groups. By default, none.
class OptionVisitor {
 public:
  virtual ~OptionVisitor() = default;
  virtual void Visit(const char*, Number&) {}
  virtual void Visit(const char*, double&) {}
  virtual void Visit(const char*, int64_t&) {}
  virtual void Visit(const char*, bool&) {}
  virtual void Visit(const char*, std::optional<bool>&) {}
  virtual void Visit(const char*, std::tuple<double, double>&) {}
  virtual void Visit(const char*, std::tuple<double, double, double>&) {}
  virtual void Visit(const char*, std::tuple<std::optional<double>, double>&) {}
  virtual void Visit(const char*, std::optional<std::string>&) {}
  // A key of Python's with the one value that this optimizer has.
  virtual void Constant(const char*, bool) {}
};

// Options of a param group. An optimizer's options derive from CloneableOptions.
class Options : public torch::optim::OptimizerOptions {
 public:
  // Visits all options in the order of Python's param_groups.
  virtual void Visit(OptionVisitor& visitor) = 0;
  // Throws c10::Error with Python's words if an option is out of its range, or excludes another.
  virtual void Check() const = 0;

  // Becomes a copy of `from`, which must have this class.
  virtual void Assign(const Options& from) = 0;

  // Modes that an optimizer lacks are never chosen.
  virtual std::optional<bool> use_foreach() const { return std::nullopt; }
  virtual std::optional<bool> use_fused() const { return std::nullopt; }
  virtual bool use_capturable() const { return false; }
  bool rate_is_tensor() const { return const_cast<Options*>(this)->rate().is_tensor(); }
  // True for a number too.
  bool rate_is_on_cpu() const { return !rate_is_tensor() || const_cast<Options*>(this)->rate().tensor().is_cpu(); }

  // LibTorch's schedulers and Lockstep's use these two.
  double get_lr() const override;
  void set_lr(double lr) override;

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

 protected:
  virtual Number& rate() = 0;
  // Throws if both `foreach` and `fused` are chosen.
  void CheckModes() const;
  // Throws, with the words that Adam and the optimizers derived from it share, if one of these is out of its range.
  static void CheckAdamFamily(double lr, const std::tuple<double, double>& betas, double eps, double weight_decay);
};

// `Derived` is the class of an optimizer's options. It can be copied.
template <typename Derived>
class CloneableOptions : public Options {
 public:
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
  void Assign(const Options& from) override { static_cast<Derived&>(*this) = static_cast<const Derived&>(from); }

 protected:
  Number& rate() override { return static_cast<Derived&>(*this).lr(); }
};

// The state of a parameter: a tensor for each of the optimizer's state_keys(), undefined where Python has no such key.
struct State : torch::optim::OptimizerParamState {
  std::vector<at::Tensor> tensors;

  // Copies share the tensors.
  std::unique_ptr<torch::optim::OptimizerParamState> clone() const override;
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_OPTIONS_H_
